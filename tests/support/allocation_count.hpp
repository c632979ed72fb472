// SPDX-License-Identifier: Apache-2.0
// Counts how often the calling thread has allocated memory: operator new, malloc and their kin,
// wherever in the process they are called from. The program that links this replaces malloc.
#pragma once

#include <cstdint>

namespace ctxbroker::bench {

// False where a sanitizer owns malloc.
bool allocations_are_counted() noexcept;
std::uint64_t allocations_of_this_thread() noexcept;

}  // namespace ctxbroker::bench
