// SPDX-License-Identifier: Apache-2.0
/// @file
/// One CUDA device, as the driver describes it.
#pragma once

#include <cstdint>
#include <string>

namespace ctxbroker {

/// What the driver says of a device.
struct DeviceInfo {
  int ordinal = 0;                 ///< CUDA device ordinal: 0, 1, ...
  std::string name;                ///< "NVIDIA H200".
  int compute_major = 0;           ///< Compute capability 9.0: 9.
  int compute_minor = 0;           ///< Compute capability 9.0: 0.
  int multiprocessors = 0;         ///< Streaming multiprocessors (SMs).
  std::uint64_t memory_bytes = 0;  ///< Device memory, in bytes.
  /// The process uses the device through an MPS server: a fault of one of the server's clients ends
  /// CUDA in all of them.
  bool mps = false;
  /// The driver has memory pools on the device. A tenant's memory can then come from a pool of its
  /// own: MemorySource::pool. This also needs a driver for CUDA 12.5 or later.
  bool memory_pools = false;
  /// The driver makes host memory apart from its addresses (cuMemCreate) near the device. If it
  /// does so for all devices, a tenant's pinned memory can come from a pool of its own, too.
  bool pinned_pools = false;
};

/// Whether a device's primary context is protected. While the shield is up, the driver refuses
/// every call that would destroy that context, whoever makes it.
struct ShieldInfo {
  /// The broker uses the device. Before that it creates nothing on it.
  bool in_use = false;
  /// The driver refuses to reset the device.
  bool up = false;
  /// Why the shield is not up. Empty while it is.
  std::string reason;
};

}  // namespace ctxbroker
