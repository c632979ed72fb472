// SPDX-License-Identifier: Apache-2.0
// Counts how often the calling thread has taken a mutex (std::mutex::lock), wherever in the process
// its code is. The program that links this replaces pthread_mutex_lock.
#pragma once

#include <cstdint>

namespace ctxbroker::bench {

// False where a sanitizer owns the mutexes.
bool locks_are_counted() noexcept;
std::uint64_t locks_of_this_thread() noexcept;

}  // namespace ctxbroker::bench
