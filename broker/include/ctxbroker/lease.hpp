// A tenant's right to a context on one device, as the host sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker {

enum class LeaseKind {
  automatic,    // only asked for, never granted
  shared,       // the device's retained primary context
  private_own,  // a context made for this tenant alone; written "private"
};

CTXB_API const char* to_string(LeaseKind kind) noexcept;  // "auto", "shared", "private"
CTXB_API std::optional<LeaseKind> parse_lease_kind(std::string_view text) noexcept;

struct LeaseInfo {
  TenantId tenant;
  int device = 0;
  LeaseKind asked = LeaseKind::automatic;
  LeaseKind granted = LeaseKind::shared;
  std::string reason;            // why this kind was granted
  std::uint64_t generation = 0;  // which life of the context this is; unique in the process
  CUcontext context = nullptr;   // borrowed; for interoperation, never to be destroyed
};

}  // namespace ctxbroker
