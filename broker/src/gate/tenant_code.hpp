// SPDX-License-Identifier: Apache-2.0
// The tenants' code, for readers without a lock. The map of code writes it.
#pragma once

#include <cstdint>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

class GatedTenant;

// A tenant's library.
struct TenantCode {
  Extent code;
  GatedTenant* tenant = nullptr;  // null: the library may be gone, and its addresses another's
  const char* path = "";          // as the loader has it; lasting
};

// Replaces the libraries as a whole, so that no reader sees the end of a change without its result.
// They are in the order of their addresses. `is_changing`: code that they lack may be a tenant's.
// Allocates only for more libraries than there ever was room for. One thread at a time. Throws
// std::bad_alloc, and has changed nothing then.
void publish_tenant_code(const std::vector<TenantCode>& libraries, bool is_changing);

// Returns a number that changes whenever owners of code change; 0 before the first time. What was
// decided from them has to be decided again then. Any thread; takes no lock.
std::uint64_t owners_of_code() noexcept;

// Returns the library that holds an address. Its tenant is null if no tenant is known to have it,
// and while libraries are being replaced. Any thread; takes no lock, allocates nothing and never
// waits.
TenantCode tenant_code_at(const void* address) noexcept;

// Returns whether any word of [first, end) could be an address in a tenant's code. Also true while
// a tenant's library arrives, and while the ranges are being replaced. For a stack this is far
// cheaper than unwinding it. Any thread; takes no lock, allocates nothing and never waits, so it is
// safe in a signal's handler and inside the loader.
bool may_point_into_tenants(const std::uintptr_t* first, const std::uintptr_t* end) noexcept;

}  // namespace ctxbroker::detail
