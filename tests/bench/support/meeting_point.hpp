// SPDX-License-Identifier: Apache-2.0
// Where threads that measure the same thing at the same time wait for each other.
#pragma once

#include <atomic>

namespace ctxbroker::bench {

// They stay awake: what a thread does after it has slept takes longer, and not in the same ratio.
class MeetingPoint {
 public:
  explicit MeetingPoint(unsigned threads) noexcept : expected_(threads) {}

  // Returns when all have come, or one of them has failed. What was written before is seen after.
  void meet() noexcept;
  // The others go on without waiting, now and later.
  void fail() noexcept { failed_.store(true, std::memory_order_relaxed); }

 private:
  const unsigned expected_;
  std::atomic<unsigned> here_{0};
  std::atomic<unsigned> meetings_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace ctxbroker::bench
