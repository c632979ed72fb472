// SPDX-License-Identifier: Apache-2.0
// Counts what the threads of this test program allocate with operator new.
#pragma once

#include <cstdint>

namespace ctxbroker::test {

// Of the calling thread, so far.
extern thread_local std::uint64_t allocations, allocated_bytes;

}  // namespace ctxbroker::test
