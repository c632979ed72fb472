// SPDX-License-Identifier: Apache-2.0
// What the code of a tenant still holds when the tenant ends.
#pragma once

#include <functional>
#include <optional>

#include "driver/driver_table.hpp"
#include "gate/gated_tenant.hpp"
#include "ledger/give_back.hpp"

namespace ctxbroker::detail {

// Ends one thing that a tenant's code made in a lease and that nobody holds any more; as
// Lease::give_back.
std::optional<CUresult> end_holding(GatedTenant& tenant, const Holding& holding,
                                    std::function<void(CUresult)> settle,
                                    bool quiet = false) noexcept;

// Gives back what its code made through the driver, each thing where it was made; what has ended
// with its context is only forgotten. While the tenant is open. With code that stays in the process
// (`resident`), its modules, streams and events stay too, and where there is a runtime library,
// memory as well. The next tenant that opens this GatedTenant has them. Throws std::bad_alloc.
void give_back(GatedTenant& tenant, bool resident, const Reason& reason);

// Retains the primary for good, once per device and process: code that stays loaded behind a closed
// tenant may hold its handle, as the runtime library does, which is of no use any more once that
// context has ended. Any thread.
CUresult keep_primary(const DriverTable& driver, CUdevice device) noexcept;

}  // namespace ctxbroker::detail
