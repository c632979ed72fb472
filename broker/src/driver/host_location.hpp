// SPDX-License-Identifier: Apache-2.0
// Pinned host memory that is made apart from its addresses (cuMemCreate).
#pragma once

#include <cuda.h>

#include <optional>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Returns the place where the driver makes such memory near the device: the device's NUMA node, or
// else the host. Returns nothing if the driver makes none.
std::optional<CUmemLocation> find_host_location(const DriverTable& driver,
                                                CUdevice device) noexcept;

}  // namespace ctxbroker::detail
