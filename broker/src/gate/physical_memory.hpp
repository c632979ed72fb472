// Physical memory is there until nobody holds its handle and nothing maps it, and counts as long.
#pragma once

#include <memory>

#include "gate/gated_tenant.hpp"
#include "gate/holding.hpp"

namespace ctxbroker::detail {

// Device memory that counts for a tenant until the last of these is gone.
using Charge = std::shared_ptr<const void>;
// Null: the tenant's budget has no room for it. Throws std::bad_alloc.
Charge take_charge(GatedTenant& tenant, std::uint64_t bytes);

// What a handle of physical memory (Kind::physical) or a mapping of it (Kind::mapping, by address)
// is charged with. A handle may be another memory's as soon as the driver has ended it: its charge
// is taken out before, and put back where the driver refused. Any thread.
void put_charge(Kind kind, std::uint64_t handle, Charge charge);  // throws std::bad_alloc
Charge charge_of(Kind kind, std::uint64_t handle) noexcept;       // null: none
Charge take_out_charge(Kind kind, std::uint64_t handle) noexcept;

}  // namespace ctxbroker::detail
