// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread that is expected soon.
#pragma once

#include <chrono>

namespace ctxbroker::software {

// Looks for at most `limit`; false then, and the caller goes to sleep. It does not offer its core
// between looks: on a busy machine a thread that yields waits behind all the others, for
// milliseconds, while one that sleeps and is woken is next.
template <class Condition>
bool spin(std::chrono::nanoseconds limit, Condition condition) {
  auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace ctxbroker::software
