// SPDX-License-Identifier: Apache-2.0
#include "api/capture.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "api/context.hpp"
#include "api/event.hpp"
#include "api/process.hpp"
#include "api/status.hpp"
#include "api/stream.hpp"

namespace ctxbroker::software {

namespace detail {
constinit std::atomic<int> open_captures = 0;
}

namespace {

// The thread's own by the interface's definition.
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Not the system's identifier, which the next thread may have: a capture can outlive its thread.
std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = ++last;
  return number;
}

using Captures = std::vector<std::shared_ptr<Capture>>;

// Under graphs_mutex(), like everything below. Never destroyed: threads end after static objects
// do.
Captures& open_list() {
  static Captures& all = *new Captures;
  return all;
}

// Those of the open captures that `conflicts` names are invalid from now on. Was there one?
template <class Conflicts>
bool invalidate(Conflicts conflicts) {
  bool any = false;
  for (const auto& capture : open_list()) {
    if (!capture->valid || !conflicts(*capture)) continue;
    capture->valid = false;
    any = true;
  }
  return any;
}

template <class Chosen>
bool has_stream(const Capture& capture, Chosen chosen) {
  return std::any_of(capture.streams.begin(), capture.streams.end(),
                     [&](const auto& stream) { return chosen(*stream); });
}

bool blocks_legacy_of(const Capture& capture, const Stream& legacy) {
  return legacy.ordering == Ordering::legacy && has_stream(capture, [&](const Stream& stream) {
           return stream.group == legacy.group && stream.ordering == Ordering::blocking;
         });
}

void check_valid(const StreamCapture& part) {
  check_that(part.of->valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

void join(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture) {
  stream->capture = std::make_unique<StreamCapture>();
  stream->capture->of = capture;
  capture->streams.push_back(stream);
}

// Its streams are as they were before.
void close(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->streams) stream->capture = nullptr;
  capture->streams.clear();
  capture->graph->in_capture = false;
  if (std::erase(open_list(), capture) != 0) --detail::open_captures;
}

void add_to(GraphNodes& nodes, const GraphNodes& more) {
  for (const auto& node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

// Everything that the nodes come after, themselves included.
std::set<const GraphNode*> reached_from(const GraphNodes& nodes) {
  std::set<const GraphNode*> reached;
  GraphNodes ahead = nodes;
  while (!ahead.empty()) {
    std::shared_ptr<GraphNode> node = std::move(ahead.back());
    ahead.pop_back();
    if (reached.insert(node.get()).second)
      ahead.insert(ahead.end(), node->after.begin(), node->after.end());
  }
  return reached;
}

bool all_joined(const Capture& capture) {
  std::set<const GraphNode*> reached = reached_from(capture.origin->capture->last);
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const auto& stream) {
    const GraphNodes& last = stream->capture->last;
    return std::all_of(last.begin(), last.end(),
                       [&](const auto& node) { return reached.count(node.get()) != 0; });
  });
}

Operation operation_of(const Stream& stream, const Command& command) {
  Operation operation;
  operation.type = command.node_type;
  operation.kind = command.kind;
  operation.work = command.work;
  operation.uses = command.uses;
  operation.device = &stream.context.device;
  operation.kernel = command.kernel;
  return operation;
}

void add_captured(StreamCapture& part, Operation operation) {
  part.last = {add_node(part.of->graph, std::move(operation), part.last)};
}

Operation event_operation(const std::shared_ptr<Event>& event, CUgraphNodeType type) {
  Operation operation;
  operation.type = type;
  operation.event = event;
  return operation;
}

[[noreturn]] void spoil(Capture& capture, CUresult status) {
  capture.valid = false;
  fail(status);
}

template <class Chosen>
void abandon(Chosen chosen) {
  if (!any_capture()) return;
  std::lock_guard lock(graphs_mutex());
  for (const auto& capture : Captures(open_list())) {
    if (!chosen(*capture)) continue;
    close(capture);
    forget_graph(capture->graph);
  }
}

}  // namespace

// An invalid capture is in nobody's way.
void detail::refuse_unsafe_slowly() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  std::lock_guard lock(graphs_mutex());
  bool refused = invalidate([](const Capture& capture) {
    if (capture.thread == this_thread_number())
      return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  });
  check_that(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void detail::check_use_slowly(const Stream& stream) {
  std::lock_guard lock(graphs_mutex());
  bool refused =
      invalidate([&](const Capture& capture) { return blocks_legacy_of(capture, stream); });
  check_that(!refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void detail::refuse_waiting_slowly(const Stream& stream) {
  std::lock_guard lock(graphs_mutex());
  if (stream.capture != nullptr) spoil(*stream.capture->of, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void detail::refuse_waiting_slowly(const Context& context) {
  std::lock_guard lock(graphs_mutex());
  bool refused = invalidate([&](const Capture& capture) {
    return has_stream(capture, [&](const Stream& stream) {
      return stream.group == &context || stream.family == &context;
    });
  });
  check_that(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool detail::is_captured_slowly(const Stream& stream) {
  std::lock_guard lock(graphs_mutex());
  if (stream.capture == nullptr) return false;
  check_valid(*stream.capture);
  return true;
}

bool detail::capture_command_slowly(const std::shared_ptr<Stream>& stream, const Command& command) {
  std::lock_guard lock(graphs_mutex());
  if (stream->capture == nullptr) return false;
  check_valid(*stream->capture);
  add_captured(*stream->capture, operation_of(*stream, command));
  return true;
}

bool detail::capture_operation_slowly(const Stream& stream,
                                      const std::function<Operation()>& make) {
  std::lock_guard lock(graphs_mutex());
  if (stream.capture == nullptr) return false;
  check_valid(*stream.capture);
  add_captured(*stream.capture, make());
  return true;
}

void refuse_in_capture(const Stream& stream, CUresult status) {
  if (!any_capture()) return;
  std::lock_guard lock(graphs_mutex());
  if (stream.capture == nullptr) return;
  check_valid(*stream.capture);
  spoil(*stream.capture->of, status);
}

bool capture_record(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event,
                    bool external) {
  if (!any_capture()) return false;
  std::lock_guard lock(graphs_mutex());
  if (stream->capture == nullptr) return false;
  StreamCapture& part = *stream->capture;
  check_valid(part);
  if (external)
    add_captured(part, event_operation(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD));
  else
    event->set_captured({part.of, part.last});
  return true;
}

bool capture_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event,
                  bool external) {
  std::lock_guard lock(graphs_mutex());
  StreamCapture* part = stream->capture.get();
  if (part != nullptr) check_valid(*part);
  if (external) {
    if (part == nullptr) return false;
    add_captured(*part, event_operation(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT));
    return true;
  }
  std::optional<CapturedRecord> record = event->captured();
  if (!record.has_value()) {
    if (part == nullptr) return false;
    if (event->latest() == nullptr) return true;  // never recorded: nothing to wait for
    spoil(*part->of, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  std::shared_ptr<Capture> of = record->of.lock();
  check_that(of != nullptr && !of->streams.empty(), CUDA_ERROR_CAPTURED_EVENT);  // it has ended
  check_value(of->valid);  // the stream's own would have been refused above
  if (part != nullptr && part->of != of) {
    of->valid = false;
    spoil(*part->of, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (part == nullptr) {
    if (stream->ordering == Ordering::legacy) spoil(*of, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    join(stream, of);
    part = stream->capture.get();
  }
  add_to(part->last, record->nodes);
  return true;
}

void refuse_captured(const Event& event) {
  std::optional<CapturedRecord> record = event.captured();
  if (!record.has_value()) return;
  std::lock_guard lock(graphs_mutex());
  std::shared_ptr<Capture> of = record->of.lock();
  check_that(of != nullptr, CUDA_ERROR_CAPTURED_EVENT);
  spoil(*of, CUDA_ERROR_CAPTURED_EVENT);
}

void begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  check_that(stream->ordering != Ordering::legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  std::lock_guard lock(graphs_mutex());
  check_that(stream->capture == nullptr, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->id = next_id();
  capture->mode = mode;
  capture->thread = this_thread_number();
  capture->origin = stream;
  capture->graph = std::make_shared<Graph>();
  capture->graph->in_capture = true;
  Process::instance().graphs.insert(capture->graph, [&] { stream->context.check_alive(); });
  join(stream, capture);
  open_list().push_back(capture);
  ++detail::open_captures;
}

CUresult end_capture(const std::shared_ptr<Stream>& stream, CUgraph* graph) {
  std::lock_guard lock(graphs_mutex());
  *graph = nullptr;
  check_that(stream->capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  std::shared_ptr<Capture> capture = stream->capture->of;
  if (capture->origin != stream) spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  const bool by_right =
      capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == this_thread_number();
  // Another thread is refused, and has ended it all the same.
  CUresult status = !by_right               ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                    : !capture->valid       ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !all_joined(*capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                            : CUDA_SUCCESS;
  close(capture);
  if (status == CUDA_SUCCESS)
    *graph = capture->graph->handle;
  else
    forget_graph(capture->graph);
  return status;
}

void abandon_captures(const Stream& stream) {
  abandon([&](const Capture& capture) { return capture.origin.get() == &stream; });
}

void abandon_captures(const Context& context) {
  abandon([&](const Capture& capture) {
    return has_stream(capture, [&](const Stream& one) { return one.family == &context; });
  });
}

void forget_captures() {
  abandon([](const Capture&) { return true; });
}

CaptureInfo capture_info(const Stream& stream) {
  CaptureInfo info;
  if (!any_capture()) return info;
  std::lock_guard lock(graphs_mutex());
  for (const auto& capture : open_list())
    check_that(!blocks_legacy_of(*capture, stream), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream.capture == nullptr) return info;
  StreamCapture& part = *stream.capture;
  info.status =
      part.of->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (!part.of->valid) return info;
  part.told.clear();
  for (const auto& node : part.last) part.told.push_back(node->handle);
  info.id = part.of->id;
  info.graph = part.of->graph->handle;
  info.dependencies = part.told.data();
  info.dependency_count = part.told.size();
  return info;
}

void update_capture_dependencies(const Stream& stream, const GraphNodes& nodes, bool replace) {
  std::lock_guard lock(graphs_mutex());
  check_that(stream.capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  StreamCapture& part = *stream.capture;
  check_valid(part);
  for (const auto& node : nodes) check_value(node->graph.lock() == part.of->graph);
  if (replace) part.last.clear();
  add_to(part.last, nodes);
}

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) noexcept {
  return std::exchange(thread_mode, mode);
}

}  // namespace ctxbroker::software
