// SPDX-License-Identifier: Apache-2.0
// Stream capture: what is put into a stream becomes nodes of a graph, and what would spoil that is
// refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/graph.hpp"

namespace ctxbroker::software {

struct Context;

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  // the number of the thread that began it
  std::shared_ptr<Stream> origin;
  std::vector<std::shared_ptr<Stream>> streams;  // the origin, and those that joined
  std::shared_ptr<Graph> graph;
  bool valid = true;
};

using GraphNodes = std::vector<std::shared_ptr<GraphNode>>;

// A stream's part of a capture.
struct StreamCapture {
  std::shared_ptr<Capture> of;
  GraphNodes last;                // what the next node comes after
  std::vector<CUgraphNode> told;  // the same, as cuStreamGetCaptureInfo told it
};

// A record of an event in a capture.
struct CapturedRecord {
  std::weak_ptr<Capture> of;
  GraphNodes nodes;
};

namespace detail {
// How many captures are open. Read by every call that cares, so it can be in no object of one.
extern std::atomic<int> open_captures;
void refuse_unsafe_slowly();
void check_use_slowly(const Stream& stream);
void refuse_waiting_slowly(const Stream& stream);
void refuse_waiting_slowly(const Context& context);
bool capture_command_slowly(const std::shared_ptr<Stream>& stream, const Command& command);
bool capture_operation_slowly(const Stream& stream, const std::function<Operation()>& make);
bool is_captured_slowly(const Stream& stream);
}  // namespace detail

inline bool any_capture() noexcept {
  return detail::open_captures.load(std::memory_order_acquire) != 0;
}

// For calls that a capture does not see and may depend on, like cuMemAlloc: by the thread's mode,
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures in the way are invalid.
inline void refuse_unsafe() {
  if (any_capture()) detail::refuse_unsafe_slowly();
}

// For each use of a stream. The legacy stream, while a stream that waits for it is captured:
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and that capture is invalid.
inline void check_use(const Stream& stream) {
  if (any_capture()) detail::check_use_slowly(stream);
}

// For calls that wait for a stream's work, or a context's: what is captured never comes.
template <class Waited>
void refuse_waiting(const Waited& waited) {
  if (any_capture()) detail::refuse_waiting_slowly(waited);
}

// Is the stream's work captured? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
inline bool is_captured(const Stream& stream) {
  return any_capture() && detail::is_captured_slowly(stream);
}

// Makes a node of the command where the stream is captured; then it must not be enqueued.
inline bool capture_command(const std::shared_ptr<Stream>& stream, const Command& command) {
  return any_capture() && detail::capture_command_slowly(stream, command);
}

// Makes a node of what `make` gives where the stream is captured; it is not called elsewhere.
inline bool capture_operation(const Stream& stream, const std::function<Operation()>& make) {
  return any_capture() && detail::capture_operation_slowly(stream, make);
}

// For what no graph can hold: makes the stream's capture invalid, and fails with `status`, or with
// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
void refuse_in_capture(const Stream& stream, CUresult status);

// True where the stream is captured: the event's record is, then, as a node if it is external.
bool capture_record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event,
                    bool external);
// True where the stream or the event's record is captured: the stream joins, or its next node
// comes after the record too. CUDA_ERROR_STREAM_CAPTURE_*.
bool capture_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event,
                  bool external);
// CUDA_ERROR_CAPTURED_EVENT when it was last recorded in a capture; that one is invalid then.
void refuse_captured(const Event& event);

void begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
// The graph, entered in the process's table; null with the status of what went wrong.
CUresult end_capture(const std::shared_ptr<Stream>& stream, CUgraph* graph);
// Of what ends otherwise.
void abandon_captures(const Stream& stream);    // that it began in; one that joined is kept for it
void abandon_captures(const Context& context);  // of its family
void forget_captures();                         // all, with the life of the driver

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t dependency_count = 0;
};
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a stream that waits for it is
// captured; that changes nothing.
CaptureInfo capture_info(const Stream& stream);
// CUDA_ERROR_ILLEGAL_STATE when the stream is not captured.
void update_capture_dependencies(const Stream& stream, const GraphNodes& nodes, bool replace);

// Sets the calling thread's mode and returns the one it had.
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) noexcept;

}  // namespace ctxbroker::software
