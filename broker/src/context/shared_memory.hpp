// SPDX-License-Identifier: Apache-2.0
// Device memory that processes share by file descriptor. Memory that is mapped belongs to the
// device and to no context, so it outlives its lease's generation. Some devices share only memory
// of cuMemAlloc, by cuIpc*. It ends with the context, and its descriptor leads to the driver's
// handle.
#pragma once

#include <cstdint>
#include <memory>

#include "context/lease.hpp"

namespace ctxbroker::detail {

// Where it is in this process.
struct SharedMemory {
  enum class How : std::uint8_t {
    mapped,
    allocated,  // other processes open it
    opened,     // another process has allocated it
  };
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;  // whole units of the device
  How how = How::mapped;
};

// What another process needs to import it.
struct ExportedMemory {
  int descriptor = -1;  // the caller's to close
  int device = 0;
};

// These enter the lease themselves. They throw Error: lease_unavailable for a device that
// shares no memory; out_of_memory, context_lost, driver_call. `bytes` is rounded up to whole units.
SharedMemory make_shared_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes);
// Another process's memory, or this one's a second time if it is mapped. The descriptor stays the
// caller's. Throws invalid_argument for a descriptor of something else, for memory of another
// device, and for more bytes than there are.
SharedMemory import_shared_memory(const std::shared_ptr<Lease>& lease, int descriptor,
                                  std::uint64_t bytes);
// A new descriptor of what make_shared_memory returned. It is the caller's to close.
// Memory that is allocated needs the lease that it was made in.
int export_shared_memory(const std::shared_ptr<Lease>& lease, const SharedMemory& memory);

// Inside a context. May wait for work.
CUresult end_shared_memory(const DriverTable& driver, const SharedMemory& memory) noexcept;

}  // namespace ctxbroker::detail
