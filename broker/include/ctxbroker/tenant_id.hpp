// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of a tenant.
#pragma once

#include <cstdint>

namespace ctxbroker {

/// Names one tenant: the host (0), a plug-in library, or a tenant that the host opened (1, 2, ...).
/// A process never gives the same number to two tenants.
struct TenantId {
  std::uint32_t value = 0;

  friend bool operator==(TenantId a, TenantId b) noexcept { return a.value == b.value; }
  friend bool operator!=(TenantId a, TenantId b) noexcept { return a.value != b.value; }
  /// Orders tenants by the time at which they came into the process.
  friend bool operator<(TenantId a, TenantId b) noexcept { return a.value < b.value; }
};

/// The host's own tenant.
inline constexpr TenantId host_tenant{0};

}  // namespace ctxbroker
