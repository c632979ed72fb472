// SPDX-License-Identifier: Apache-2.0
#include "support/meeting_point.hpp"

#include <thread>

namespace ctxbroker::bench {

void MeetingPoint::meet() noexcept {
  const unsigned meeting = meetings_.load(std::memory_order_acquire);
  if (here_.fetch_add(1, std::memory_order_acq_rel) + 1 == expected_) {
    here_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_release);
    return;
  }
  // Where there are more threads than processors somebody else has to get on.
  constexpr unsigned patience = 1U << 16;
  for (unsigned look = 0; meetings_.load(std::memory_order_acquire) == meeting; ++look) {
    if (failed_.load(std::memory_order_relaxed)) return;
    if (look > patience) std::this_thread::yield();
  }
}

}  // namespace ctxbroker::bench
