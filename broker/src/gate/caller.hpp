// SPDX-License-Identifier: Apache-2.0
// Finds who calls a guarded function of the driver.
#pragma once

#include "context/guard.hpp"
#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

struct Caller {
  GatedTenant* tenant = nullptr;  // null: the host
  bool guarded = false;           // by a guard of that tenant on this thread
  const void* from = nullptr;     // where the call returns to
};

// Once, before anything calls.
void learn_of_threads() noexcept;

// Answers where no guard and no host frame does.
Caller calling_on_a_bare_thread() noexcept;

// Finds the caller, in this order: the thread's innermost guard or host frame; the tenant whose
// code the thread was started with, which is decided again when owners of code change, unless the
// call returns to another tenant's code; a tenant's code among the callers; else the host. An
// address can show that a tenant calls. It never shows that the host calls, because a tail call
// hides its caller. So a call that is taken for the host's may come from nobody's code: see
// is_nobodys. `from` is left to enter_rule.
inline Caller calling() noexcept {
  if (!any_gated_tenant()) return {};
  const FrameOwner frame = frame_owner();
  if (!frame.decided) return calling_on_a_bare_thread();
  GatedTenant* const tenant =
      frame.tenant != nullptr ? frame.tenant->gated.load(std::memory_order_acquire) : nullptr;
  return {tenant, tenant != nullptr};
}

// Returns whether a call that is taken for the host's may come from nobody's code. By its return
// address it does if it returns to a library that calls whatever function it was given, to code of
// another tenant than `holder`, or to no library. Slow. Throws std::bad_alloc.
bool is_nobodys(const Caller& caller, const GatedTenant& holder);
// The same for a call that names no thing of a tenant. Code of no library counts as the host's
// here, because a host's code can be made at run time.
bool is_nobodys(const Caller& caller);

// Another tenant has adopted the code of the calling thread, which is outside of guards. Where the
// lease of the earlier tenant is current, this one's is made current. In rules/contexts.cpp.
void lead_to_own_lease(GatedTenant& tenant) noexcept;

// Another tenant has called before on the calling thread, which is outside of guards. Where a lease
// of that one is current, this one's is made current. False: this one has no lease on the device,
// and the other's stays current. In rules/contexts.cpp.
bool lead_out_of_neighbours_lease(GatedTenant& tenant) noexcept;

}  // namespace ctxbroker::detail
