// A lock for what takes nanoseconds: one locked instruction, where a mutex takes two and two calls.
#pragma once

#include <atomic>

namespace ctxbroker::detail {

// For std::lock_guard. Not for what may wait for anything: who finds it taken looks again a few
// times, and sleeps between looks from then on, so that a holder of lower priority gets on.
class BriefLock {
 public:
  void lock() noexcept {
    if (taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::cold, gnu::noinline]] void wait() noexcept;

  std::atomic<bool> taken_{false};
};

}  // namespace ctxbroker::detail
