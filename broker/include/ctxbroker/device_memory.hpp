// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device memory with an owner.
#pragma once

#include <cstdint>
#include <memory>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
class TenantImpl;
}
class Tenant;

/// A piece of device memory that a tenant holds. The destructor gives the memory back.
///
/// The object may outlive the tenant. Closing the tenant gives the memory back, and the destructor
/// then does nothing. The address is dead after that, and after a loss of the lease. The class is
/// move-only, and a moved-from object holds nothing.
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
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { reset(); }

  /// The device address (a CUdeviceptr), or 0 when it holds nothing.
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  /// The size, or 0 when it holds nothing.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether it holds memory. It does not tell whether the tenant was closed.
  [[nodiscard]] explicit operator bool() const noexcept { return address_ != 0; }

  /// Gives the memory back, as Tenant::release does. The object then holds nothing. After the
  /// tenant's close, it makes no driver call.
  void reset() noexcept;
  /// Leaves the memory to the tenant, which gives it back at close or in Tenant::release.
  ///
  /// @return the address. The object then holds nothing.
  [[nodiscard]] std::uint64_t detach() noexcept;

 private:
  std::weak_ptr<detail::TenantImpl> tenant_;
  std::uint64_t address_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ctxbroker
