// SPDX-License-Identifier: Apache-2.0
/// @file
/// The source of a tenant's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// The source of a tenant's device memory and pinned memory in shared and green leases.
///
/// It applies to device memory that the tenant's code allocates with cuMemAlloc (which cudaMalloc
/// calls) or cuMemAllocPitch, and to pinned memory from cuMemHostAlloc or cuMemAllocHost (which
/// cudaHostAlloc and cudaMallocHost call). It also applies to memory that the broker allocates for
/// the tenant: in Tenant::allocate, for plug-ins and for their graphs.
///
/// It does not apply to other memory. Write-combined memory, memory that the tenant's code
/// registers and memory that processes share (DeviceMemory::shareable) always come from the driver.
/// So does all memory in a private lease.
enum class MemorySource : std::uint8_t {
  /// Leaves the choice to the policy and to the plug-ins' descriptors (CTXB_PLUGIN_DRIVER_MEMORY).
  /// If none of them makes a choice, the source is `pool`, or `driver` under ctxb-run.
  automatic,
  /// The driver's own allocations, as without a broker. A free waits until the running work of
  /// every tenant in the same primary context has ended. An allocation of pinned memory holds up
  /// the work of all tenants.
  driver,
  /// Pools of device memory and of pinned memory that only this tenant uses. An allocation holds up
  /// no other tenant. A free waits for the tenant's own work alone. In a shared lease, it waits for
  /// the tenant's own streams, and the memory is used again once all work that the device has at
  /// that moment has ended. Freed memory that running work may still use counts in the tenant's
  /// budget until that work has ended.
  ///
  /// The pools keep freed memory. Broker::poll gives it back to the driver after 10 s without an
  /// allocation, but never in a real-time session (Broker::begin_realtime).
  ///
  /// Device memory of a pool has no legacy IPC handles and no GPUDirect RDMA. If the driver has no
  /// such pools (DeviceInfo::memory_pools, DeviceInfo::pinned_pools), or if it is older than CUDA
  /// 12.5, the memory comes from the driver.
  pool,
};

/// Returns "auto", "driver" or "pool". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(MemorySource source) noexcept;
/// Returns the source that to_string names so, or nothing for any other text. Thread-safe.
[[nodiscard]] CTXB_API std::optional<MemorySource> parse_memory_source(
    std::string_view text) noexcept;

}  // namespace ctxbroker
