// Who is calling a guarded function of the driver.
#pragma once

#include "context/guard.hpp"
#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

struct Caller {
  GatedTenant* tenant = nullptr;  // null: the host
  bool guarded = false;           // by a guard of that tenant on this thread
};

// Once, before anything calls.
void learn_of_threads() noexcept;

// Where no guard or host frame says it.
Caller calling_on_a_bare_thread() noexcept;

// In this order: the thread's innermost guard or host frame; the tenant whose code the thread was
// started with; a tenant's code among the callers; else the host. An address may name a tenant, but
// a tenant's thread or guard is never taken for the host's because of one: a tail call hides its
// caller.
inline Caller calling() noexcept {
  if (!any_gated_tenant()) return {};
  const FrameOwner frame = frame_owner();
  if (!frame.decided) return calling_on_a_bare_thread();
  GatedTenant* const tenant =
      frame.tenant != nullptr ? frame.tenant->gated.load(std::memory_order_acquire) : nullptr;
  return {tenant, tenant != nullptr};
}

// The calling thread, which no guard is around, has come to this tenant with its code: where the
// lease of an earlier tenant was current, this one's is. With the policies for what is current.
void lead_to_own_lease(GatedTenant& tenant) noexcept;

}  // namespace ctxbroker::detail
