// SPDX-License-Identifier: Apache-2.0
// Streams: queues of a context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "api/command.hpp"
#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct Context;
struct StreamCapture;

struct Stream : StreamQueue {
  Stream(Context& of, Ordering how, unsigned its_flags, int its_priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Context& context;
  CUstream handle = nullptr;  // null for the default streams
  const std::uint64_t id;     // unique in the process
  const unsigned flags;       // as cuStreamGetFlags tells them
  // Null: its work is done, not captured. Under graphs_mutex().
  std::unique_ptr<StreamCapture> capture;
};

// The stream of a handle: null and CU_STREAM_LEGACY the current context's legacy stream,
// CU_STREAM_PER_THREAD the calling thread's own. Throws CUDA_ERROR_INVALID_HANDLE (under a
// green context for the thread's own too), CUDA_ERROR_CONTEXT_IS_DESTROYED (also if another primary
// has the handle of the stream's context by now), and what working_context throws.
std::shared_ptr<Stream> find_stream(CUstream handle);

// The streams that ended with their contexts. Thread-safe.
class EndedStreams {
 public:
  void add(const std::vector<std::shared_ptr<Stream>>& streams);
  bool has(CUstream handle) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<CUstream> handles_;
};

// What the _ptsz entry points make of their stream argument.
inline CUstream per_thread(CUstream handle) noexcept {
  return handle == nullptr ? CU_STREAM_PER_THREAD : handle;
}

// Enqueues, or makes a node of it where the stream is captured; the context must live, else
// CUDA_ERROR_CONTEXT_IS_DESTROYED.
void enqueue(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Command>& command);

// Waits for the commands and reports a fault that came meanwhile.
CUresult wait_for(Context& context, const std::vector<std::shared_ptr<Command>>& commands);

}  // namespace ctxbroker::software
