// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which device a plug-in works on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// How the broker chooses a device.
enum class PlacementRule {
  fixed,             ///< The device that Placement::device names.
  round_robin,       ///< Each new tenant gets the next device in turn.
  most_free_memory,  ///< The device with the most free memory. An unused device counts as empty.
};

/// Where an instance is to work.
///
/// A fixed placement names a device. The other rules choose for a tenant without a lease, among the
/// devices whose compute capability is high enough for all plug-ins of the library. Further
/// instances follow the tenant to its device.
struct Placement {
  PlacementRule rule = PlacementRule::fixed;
  int device = 0;  ///< CUDA device ordinal. Only a fixed placement uses it.

  /// Device 0.
  Placement() = default;
  /// The device with this CUDA ordinal.
  explicit Placement(int its_device) : device(its_device) {}
  /// A device that the rule chooses.
  explicit Placement(PlacementRule its_rule) : rule(its_rule) {}

  friend bool operator==(const Placement& a, const Placement& b) noexcept {
    return a.rule == b.rule && a.device == b.device;
  }
  friend bool operator!=(const Placement& a, const Placement& b) noexcept { return !(a == b); }
};

/// Returns the device's number, "round-robin" or "most-free-memory". Thread-safe.
[[nodiscard]] CTXB_API std::string to_string(const Placement& placement);

/// Reads a placement.
///
/// @param text  a device's number from 0 to 1023, "round-robin" or "most-free-memory".
/// @return the placement, or nothing for any other text. Thread-safe.
[[nodiscard]] CTXB_API std::optional<Placement> parse_placement(std::string_view text) noexcept;

}  // namespace ctxbroker
