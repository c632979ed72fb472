// Waiting for another thread that is expected soon.
#pragma once

#include <chrono>
#include <thread>

namespace ctxbroker::software {

// Looks for at most `limit`. On a busy machine the other side may need this very core: it is
// offered between looks.
template <class Condition>
bool spin(std::chrono::nanoseconds limit, Condition condition) {
  auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace ctxbroker::software
