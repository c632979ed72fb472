// SPDX-License-Identifier: Apache-2.0
#include "context/thread_state.hpp"

#include <atomic>

namespace ctxbroker::detail {

constinit thread_local ThreadState thread_state;

std::uint64_t number_this_thread() noexcept {
  // Global, because a number says which thread of the process it is.
  static constinit std::atomic<std::uint64_t> last{0};
  thread_state.number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return thread_state.number;
}

}  // namespace ctxbroker::detail
