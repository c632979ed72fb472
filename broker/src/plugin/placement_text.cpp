// SPDX-License-Identifier: Apache-2.0
// The words for placements.
#include <charconv>

#include "ctxbroker/placement.hpp"

namespace ctxbroker {
namespace {

constexpr const char* round_robin = "round-robin";
constexpr const char* most_free_memory = "most-free-memory";
constexpr int last_device = 1023;  // far beyond what a machine holds; more is a slip

}  // namespace

std::string to_string(const Placement& placement) {
  switch (placement.rule) {
    case PlacementRule::round_robin:
      return round_robin;
    case PlacementRule::most_free_memory:
      return most_free_memory;
    case PlacementRule::fixed:
      break;
  }
  return std::to_string(placement.device);
}

std::optional<Placement> parse_placement(std::string_view text) noexcept {
  if (text == round_robin) return Placement(PlacementRule::round_robin);
  if (text == most_free_memory) return Placement(PlacementRule::most_free_memory);
  int device = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || device < 0 || device > last_device) return std::nullopt;
  return Placement(device);
}

}  // namespace ctxbroker
