// SPDX-License-Identifier: Apache-2.0
// Leads imports of the tenants' own libraries to the gate, once, right after they were loaded, or
// were given to the tenant. No other library is touched.
#pragma once

#include <cstddef>
#include <vector>

#include "gate/gated_tenant.hpp"
#include "gate/library/gate.h"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Call it once, when the driver stands behind the gate. Until then the function below does nothing.
// From then on the gate sees which libraries a tenant's code opens (`dlopen`), so that their owner
// is known. In a process that had the driver before the gate (`late`), nobody finds the gate by the
// driver's name: there the imports of guarded functions, `dlsym` and `dlvsym` lead to the gate too.
// Throws std::bad_alloc.
void start_leading_imports(const ctxb_gate& gate, bool late);

// Leads the imports of all libraries that are the tenant's alone. Any thread.
void lead_imports(GatedTenant& tenant) noexcept;

// Counts the addresses of guarded functions, as the driver behind a late gate has them, that
// libraries keep in their data: calls through these go past the gate. 0 also where the gate came
// first, and where the system does not let the data be read. Any thread.
std::size_t count_kept_functions(const std::vector<Extent>& code) noexcept;

}  // namespace ctxbroker::detail
