#include "gate/brief_lock.hpp"

#include <chrono>
#include <thread>

namespace ctxbroker::detail {
namespace {

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void BriefLock::wait() noexcept {
  constexpr unsigned looks_at_once = 100;
  for (unsigned look = 0;; ++look) {
    if (!taken_.load(std::memory_order_relaxed) &&
        !taken_.exchange(true, std::memory_order_acquire)) {
      return;
    }
    if (look < looks_at_once) {
      pause();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace ctxbroker::detail
