// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device memory with an owner.
#pragma once

#include <cstdint>
#include <memory>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
struct Access;
class TenantImpl;
}  // namespace detail
class Tenant;

/// A piece of device memory that a tenant holds. The destructor gives the memory back.
///
/// The object may outlive the tenant. Closing the tenant gives the memory back, and the destructor
/// then does nothing. The address is dead after that. After a loss of the lease it is dead too,
/// except for memory that processes share by descriptor. The class is move-only, and a moved-from
/// object holds nothing.
///
/// Several processes can use one memory: shareable makes it, export_descriptor gives a file
/// descriptor to be sent over a Unix socket, and imported maps it in the other process. Nobody
/// waits for the other process's work, so tell each other when the memory can be used.
///
/// Some devices can share memory only by CUDA's legacy IPC (`cuIpcGetMemHandle`). The functions are
/// the same there, with these limits:
/// - The memory ends with a loss of the lease.
/// - The process that made it cannot import it, and must keep it until all others have given it
///   back.
/// - In each other process, one context at a time can import it: that of the shared leases, or that
///   of one private lease.
///
/// Do not give its address to Tenant::release; call reset, or take it out with detach.
///
/// Threads: the rules of Tenant::allocate and Tenant::release.
class CTXB_API DeviceMemory {
 public:
  /// Holds nothing.
  DeviceMemory() noexcept = default;
  /// Allocates memory, as Tenant::allocate does.
  ///
  /// @param tenant  the tenant that holds it. The object keeps no reference to `tenant` itself.
  /// @param bytes   its size, at least 1.
  /// @param device  CUDA device ordinal.
  /// @throws Error  as Tenant::allocate.
  [[nodiscard]] DeviceMemory(Tenant& tenant, std::uint64_t bytes, int device = 0);

  /// Allocates memory that other processes can import: see export_descriptor.
  ///
  /// A loss of the lease leaves such memory and its address as they are, because it belongs to the
  /// device and to no context. With legacy IPC, it ends then.
  ///
  /// @param tenant  the tenant that holds it.
  /// @param bytes   its size, at least 1. It is rounded up to whole units of the device, 2 MiB on
  ///                many GPUs.
  /// @param device  CUDA device ordinal.
  /// @throws Error  as Tenant::allocate; `lease_unavailable` when the device cannot share memory.
  [[nodiscard]] static DeviceMemory shareable(Tenant& tenant, std::uint64_t bytes, int device = 0);
  /// Maps memory of another process. What either process writes there, the other one sees. It
  /// counts as the other process's: Tenant::memory_bytes leaves it out. The memory lives on when
  /// the other process gives it back or ends, and a loss of the lease leaves it as it is. With
  /// legacy IPC, it ends with the other process's memory, and with a loss of the lease.
  ///
  /// @param tenant      the tenant that holds the mapping.
  /// @param descriptor  what export_descriptor or cuMemExportToShareableHandle gave in the other
  ///                    process, and a Unix socket has brought here (SCM_RIGHTS). It stays the
  ///                    caller's, who can close it after this call.
  /// @param bytes       the size that the other process has allocated.
  /// @param device      CUDA device ordinal here of the device that has the memory.
  /// @throws Error  `invalid_argument` for a descriptor of something else, for memory of another
  ///                device, for more bytes than the memory has, and for this process's own memory
  ///                with legacy IPC; else as shareable.
  [[nodiscard]] static DeviceMemory imported(Tenant& tenant, int descriptor, std::uint64_t bytes,
                                             int device = 0);

  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { reset(); }

  /// The device address (a CUdeviceptr), or 0 when it holds nothing.
  [[nodiscard]] std::uint64_t address() const& noexcept { return address_; }
  std::uint64_t address() const&& = delete;  // The memory ends with the object: keep it.
  /// The size, or 0 when it holds nothing. Memory that processes share has whole units.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether it holds memory. It does not tell whether the tenant was closed.
  [[nodiscard]] explicit operator bool() const noexcept { return address_ != 0; }

  /// Makes a file descriptor of memory from shareable, for imported in another process. The memory
  /// stays until its last descriptor is closed and its last mapping has ended. With legacy IPC, it
  /// stays until this process gives it back.
  ///
  /// @return a new descriptor. The caller closes it.
  /// @throws Error  `invalid_argument` for memory that is not from shareable; `wrong_state` after
  ///                the tenant's close; `context_lost` for memory that has ended with its lease;
  ///                `system_limit` when there can be no more descriptors; `driver_call`.
  [[nodiscard]] int export_descriptor() const;

  /// Gives the memory back, as Tenant::release does. The object then holds nothing. After the
  /// tenant's close, it makes no driver call.
  void reset() noexcept;
  /// Leaves the memory to the tenant, which gives it back at close or in Tenant::release.
  ///
  /// @return the address. The object then holds nothing.
  [[nodiscard]] std::uint64_t detach() noexcept;

 private:
  friend struct detail::Access;
  DeviceMemory(std::weak_ptr<detail::TenantImpl> tenant, std::uint64_t address,
               std::uint64_t bytes) noexcept;

  std::weak_ptr<detail::TenantImpl> tenant_;
  std::uint64_t address_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ctxbroker
