// Who is meant: the host (0) or one plug-in library (1, 2, ...). Never reused in a process.
#pragma once

#include <cstdint>

namespace ctxbroker {

struct TenantId {
  std::uint32_t value = 0;

  friend bool operator==(TenantId a, TenantId b) noexcept { return a.value == b.value; }
  friend bool operator!=(TenantId a, TenantId b) noexcept { return a.value != b.value; }
  friend bool operator<(TenantId a, TenantId b) noexcept { return a.value < b.value; }
};

inline constexpr TenantId host_tenant{0};

}  // namespace ctxbroker
