// The contexts behind leases: how one is made, and ended.
#pragma once

#include <cstddef>
#include <vector>

#include "context/device_link.hpp"
#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

// One generation of a context behind a lease.
struct LeaseContext {
  LeaseChoice granted;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;               // green only
  CUdevResourceDesc description = nullptr;  // green only: what siblings are made from
  std::vector<std::size_t> groups;          // of multiprocessors; a partition has some
};

// A green context, both of its handles; nothing is left of one that cannot be made.
CUresult create_green(const DeviceLink& device, CUdevResourceDesc description, CUgreenCtx* green,
                      CUcontext* context) noexcept;

// The thread's context stack is left alone. Throws Error: driver_call, out_of_memory, context_lost.
LeaseContext create_private(const DeviceLink& device, CallOwner owner);

// The thread's context stack is left alone. Nothing for a shared one.
CUresult destroy(const DeviceLink& device, const LeaseContext& context) noexcept;

}  // namespace ctxbroker::detail
