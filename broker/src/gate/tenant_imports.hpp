// SPDX-License-Identifier: Apache-2.0
// Leads imports of the tenants' own libraries to the gate, once, right after they were loaded. No
// other library is touched.
#pragma once

#include "gate/gated_tenant.hpp"
#include "gate/library/gate.h"

namespace ctxbroker::detail {

// Call it once, when the driver stands behind the gate. Until then the function below does nothing.
// From then on the gate sees which libraries a tenant's code opens (`dlopen`), so that their owner
// is known. In a process that had the driver before the gate (`late`), nobody finds the gate by the
// driver's name: there the imports of guarded functions, `dlsym` and `dlvsym` lead to the gate too.
// Throws std::bad_alloc.
void start_leading_imports(const ctxb_gate& gate, bool late);

// Leads the imports of all libraries that are the tenant's alone. `library` is what dlopen
// returned; if it is not the tenant's, a late gate warns that it does not hold its calls. Any
// thread.
void lead_imports(GatedTenant& tenant, void* library) noexcept;

}  // namespace ctxbroker::detail
