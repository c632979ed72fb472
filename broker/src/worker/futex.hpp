// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word that two processes share.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

#include "worker/layout.hpp"

namespace ctxbroker::detail {

using Clock = std::chrono::steady_clock;

// Sleeps while the word has this value, at most for the time. It may return early.
inline void futex_wait(SharedWord& word, std::uint32_t value, Clock::duration time) noexcept {
  if (time <= Clock::duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{static_cast<std::time_t>(seconds.count()),
                       static_cast<long>(std::chrono::nanoseconds(time - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

inline void futex_wake(SharedWord& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks again and again for the time. Returns whether `good` was true.
template <typename Good>
bool spin_until(Clock::duration time, const Good& good) noexcept {
  if (good()) return true;
  if (time <= Clock::duration::zero()) return false;
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (good()) return true;
      spin_pause();
    }
    ::sched_yield();  // the other side may wait for this processor
  } while (Clock::now() < end);
  return false;
}

}  // namespace ctxbroker::detail
