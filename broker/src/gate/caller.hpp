// Who is calling a guarded function of the driver.
#pragma once

#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

struct Caller {
  GatedTenant* tenant = nullptr;  // null: the host
  bool guarded = false;           // by a guard of that tenant on this thread
};

// Once, before anything calls.
void learn_of_threads() noexcept;

// In this order: the thread's innermost guard or host frame; the tenant whose code the thread was
// started with; a tenant's code among the callers; else the host. An address may name a tenant, but
// a tenant's thread or guard is never taken for the host's because of one: a tail call hides its
// caller.
Caller calling() noexcept;

// The calling thread, which no guard is around, has come to this tenant with its code: where the
// lease of an earlier tenant was current, this one's is. With the policies for what is current.
void lead_to_own_lease(GatedTenant& tenant) noexcept;

}  // namespace ctxbroker::detail
