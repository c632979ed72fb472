// The gate of a process that had the driver before it: nobody finds it by the driver's name, so the
// tenants' own libraries are led to it, and nobody else's.
#pragma once

#include <string>

#include "context/tenant_identity.hpp"
#include "gate/library/gate.h"

namespace ctxbroker::detail {

// What GateInfo says of it: how the driver came first, which calls it holds, and which it cannot.
std::string late_gate_reason(const std::string& driver, const std::string& brought_by);

// From now on the functions below work; without it they do nothing. The driver is behind the gate
// and has been in the process already. Throws std::bad_alloc.
void start_late_gate(const ctxb_gate& gate);

// After a library was loaded for the tenant: every address of a guarded function of the driver that
// its libraries have been given or keep becomes the gate's, and names that they look up from now on
// are the gate's. Looks again when guards around the tenant's code end, until it has called a
// guarded function: much is bound at a library's first call. `library` is what dlopen
// returned. Any thread.
void lead_to_gate(GatedTenant& tenant, void* library) noexcept;

// The same after the tenant's code has opened a library itself, which is known to be its own.
void lead_opened_to_gate(GatedTenant& tenant) noexcept;

// Its code may bind more than before in what comes now (an activation): looks again when the next
// guard ends. Of a tenant that the gate does not know, nothing.
void look_after_next_guard(const TenantIdentity& tenant) noexcept;

}  // namespace ctxbroker::detail
