// SPDX-License-Identifier: Apache-2.0
// The addresses of the tenants' code, for readers without a lock. The map of code writes them.
#pragma once

#include <cstdint>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Replaces them as a whole, so that no reader sees the end of a change without its result.
// `ranges` are in the order of their addresses. `is_changing`: code that they lack may be a
// tenant's. Allocates only for more ranges than there ever was room for. One thread at a time.
// Throws std::bad_alloc, and has changed nothing then.
void publish_tenant_code(const std::vector<Extent>& ranges, bool is_changing);

// Returns a number that changes whenever owners of code change; 0 before the first time. What was
// decided from them has to be decided again then. Any thread; takes no lock.
std::uint64_t owners_of_code() noexcept;

// Returns whether any word of [first, end) could be an address in a tenant's code. Also true while
// a tenant's library arrives, and while the ranges are being replaced. For a stack this is far
// cheaper than unwinding it. Any thread; takes no lock, allocates nothing and never waits, so it is
// safe in a signal's handler and inside the loader.
bool may_point_into_tenants(const std::uintptr_t* first, const std::uintptr_t* end) noexcept;

}  // namespace ctxbroker::detail
