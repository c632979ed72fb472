// SPDX-License-Identifier: Apache-2.0
// The addresses of the tenants' code, for readers without a lock. The map of code writes them.
#pragma once

#include <cstdint>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Replaces them as a whole, so that no reader sees the end of a change without its result.
// `ranges` are in the order of their addresses. `is_changing`: code that they lack may be a
// tenant's. One thread at a time. Throws std::bad_alloc.
void publish_tenant_code(std::vector<Extent> ranges, bool is_changing);

// Changes whenever owners of code change. What was decided from them has to be decided again then.
// Any thread; takes no lock.
const void* owners_of_code() noexcept;

// Returns whether any word of [first, end) could be an address in a tenant's code. Also true while
// a tenant's library arrives. For a stack this is far cheaper than unwinding it. Any thread; takes
// no lock.
bool may_point_into_tenants(const std::uintptr_t* first, const std::uintptr_t* end) noexcept;

}  // namespace ctxbroker::detail
