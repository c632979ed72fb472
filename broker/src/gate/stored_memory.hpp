// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned memory that a tenant's code gets from the tenant's stores (see
// MemoryStore) and that looks like the driver's memory.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>

#include "context/memory_store.hpp"
#include "gate/caller.hpp"
#include "ledger/holding.hpp"

namespace ctxbroker::detail {

// Returns the store for an allocation on the calling thread. `kind` is Kind::memory or
// Kind::host_memory. Null: the memory comes from the driver, for example while the thread captures.
std::shared_ptr<MemoryStore> store_here(GatedTenant& tenant, Kind kind = Kind::memory) noexcept;

// Returns whether cuMemHostAlloc's flags ask for nothing that memory of a store does not have. It
// can be used from all devices, and it has device addresses.
constexpr bool can_be_stored(unsigned flags = 0) noexcept {
  return (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)) == 0;
}

// Takes the answer of a store to an allocation on the calling thread, and returns it. If the
// store's context is gone, the lease is told. The driver is not asked about the current context,
// because somebody may have made another primary context with the same handle.
CUresult report_loss(GatedTenant& tenant, CUresult status) noexcept;

// Gives memory back to its store. Waits for the tenant's own work, but for no neighbour, and no
// longer than the limit on waiting for work that may hang. The memory counts in the tenant's budget
// until the work that may use it has ended.
CUresult free_stored(GatedTenant& tenant, const Holding& held) noexcept;

// Gives memory back that its tenant leaves behind or that the host frees. Does not wait.
CUresult free_left(const Holding& held) noexcept;

// Returns the memory of any tenant's store that contains the address.
std::optional<Holding> find_stored(CUdeviceptr address, Kind kind) noexcept;
std::optional<Holding> find_stored(CUdeviceptr address) noexcept;  // of either kind

// Makes the tenant's device memory come from the driver from now on, and writes a record. Call it
// when the tenant's code wants a handle for other processes, which memory of a pool does not have.
void leave_store(GatedTenant& tenant, const char* function) noexcept;

}  // namespace ctxbroker::detail
