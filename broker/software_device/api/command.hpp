// SPDX-License-Identifier: Apache-2.0
// One piece of enqueued work, and the queue of one stream.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct KernelCall;

struct Command {
  using Clock = std::chrono::steady_clock;

  enum class Kind : std::uint8_t {
    marker,         // no work: a point in the stream
    transfer,       // a copy or a fill; may run beside a kernel
    kernel,         // one at a time, while none takes long
    host_function,  // on a thread of its own, so that one that waits does not stop the device
  };

  Kind kind = Kind::marker;
  // What is done. An error ends CUDA for the process.
  std::function<CUresult()> work;
  // What the command uses, for those who must wait for its users (a module); or null.
  const void* uses = nullptr;
  // Done even after a fault (cuStreamAddCallback reports the fault to its function).
  bool even_after_fault = false;

  // What it is as a graph's node.
  CUgraphNodeType node_type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::shared_ptr<const KernelCall> kernel;  // of a launch

  // Set by the executor.
  std::vector<std::shared_ptr<Command>> after;  // must be done first, beside the stream's own order
  std::atomic<bool> done = false;
  Clock::time_point finished_at;  // valid once done
  std::uint64_t serial = 0;       // order of arrival at the executor
  bool started = false;
};

// How a queue relates to the others of its group (the streams of one context).
enum class Ordering : std::uint8_t {
  legacy,       // waits for the blocking ones, which wait for it
  blocking,     // an ordinary stream, or a per-thread default stream
  independent,  // made with CU_STREAM_NON_BLOCKING
};

// Commands in order. All members but the constants are the executor's, under its lock.
struct StreamQueue {
  const void* group = nullptr;   // its context
  const void* family = nullptr;  // the primary of a green context; else the same as group
  Ordering ordering = Ordering::blocking;
  int priority = 0;               // lower runs first
  StreamQueue* legacy = nullptr;  // the group's legacy queue; it lives as long as the process

  std::deque<std::shared_ptr<Command>> waiting;  // the front may be running
};

}  // namespace ctxbroker::software
