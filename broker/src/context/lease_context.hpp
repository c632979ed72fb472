// SPDX-License-Identifier: Apache-2.0
// The contexts behind leases: how they are created and destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "context/device_access.hpp"
#include "context/hung_work.hpp"
#include "ctxbroker/lease.hpp"

namespace ctxbroker::detail {

// Groups of multiprocessors, by number; see MultiprocessorSplit.
using Groups = std::vector<std::size_t>;

// One generation of a context behind a lease.
struct LeaseContext {
  LeaseChoice granted;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;               // green only
  CUdevResourceDesc description = nullptr;  // green only: what siblings are made from
  Groups groups;                            // a partition has some
  std::uint64_t primary_generation = 0;     // the generation of the primary that it stands on
  std::shared_ptr<HungWork> family;         // null while no lease has it
};

// Creates a green context and fills in both of its handles. Leaves nothing behind after an error.
CUresult create_green(const DeviceAccess& device, CUdevResourceDesc description, CUgreenCtx* green,
                      CUcontext* context) noexcept;

// Creates a private context. Does not change the thread's context stack. Beside a context that is
// being destroyed, it waits for all work on the device: see UsedDevice::make.
CUresult create_private(const DeviceAccess& device, CUcontext* context) noexcept;

// Destroys a private or green context; does nothing for a shared one. Does not change the thread's
// context stack.
CUresult destroy(const DeviceAccess& device, const LeaseContext& context) noexcept;

}  // namespace ctxbroker::detail
