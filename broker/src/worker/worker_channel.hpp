// SPDX-License-Identifier: Apache-2.0
// The worker's end of a channel. layout.hpp says how it works. It touches memory only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/futex.hpp"
#include "worker/layout.hpp"

namespace ctxbroker::detail {

// A request that this thread has taken. The bytes stay where they are until the reply.
struct Request {
  std::uint32_t cell = 0;
  std::uint32_t type = 0;
  std::uint64_t subject = 0;
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t capacity = 0;  // of a good reply
};

class WorkerChannel {
 public:
  WorkerChannel(std::byte* memory, const Shape& shape, Clock::duration spin)
      : memory_(memory), shape_(shape), spin_(spin) {}

  // Any thread. Waits for the oldest request that no other thread has taken; false after `stop`.
  // A request that is longer than a cell never leaves here: it gets an error for a reply.
  bool take(Request& request) noexcept;

  // Answers. A reply that is longer than the room for it is cut off there.
  void reply(const Request& request, std::int32_t status, const void* data,
             std::size_t bytes) noexcept;

  void stop() noexcept;  // every `take` returns false

  Control& control() noexcept { return control_of(memory_); }

 private:
  bool take_oldest(Request& request) noexcept;

  std::byte* memory_;
  Shape shape_;
  Clock::duration spin_;
  std::atomic<bool> stopped_{false};
};

}  // namespace ctxbroker::detail
