// Which device a plug-in works on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

enum class PlacementRule {
  fixed,             // the device with this number
  round_robin,       // tenants on the devices in turn
  most_free_memory,  // the device with most free memory; one not in use counts as wholly free
};

// Fixed names a device. The other rules choose one for a tenant, among the devices that are new
// enough for all of its plug-ins; while the tenant has a lease, its plug-ins follow it there.
struct Placement {
  PlacementRule rule = PlacementRule::fixed;
  int device = 0;  // CUDA's number; of a fixed placement alone

  Placement() = default;
  explicit Placement(int its_device) : device(its_device) {}
  explicit Placement(PlacementRule its_rule) : rule(its_rule) {}
  friend bool operator==(const Placement& a, const Placement& b) noexcept {
    return a.rule == b.rule && a.device == b.device;
  }
  friend bool operator!=(const Placement& a, const Placement& b) noexcept { return !(a == b); }
};

CTXB_API std::string to_string(const Placement& placement);  // "1", "round-robin", ...
// The inverse: a device's number from 0 to 1023, or a rule's name.
CTXB_API std::optional<Placement> parse_placement(std::string_view text) noexcept;

}  // namespace ctxbroker
