// SPDX-License-Identifier: Apache-2.0
// The words for the values of an enumeration, from an array in the order of the enumeration.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ctxbroker::detail {

template <std::size_t count>
using EnumNames = std::array<const char*, count>;

template <typename Value, std::size_t count>
const char* name_of(const EnumNames<count>& names, Value value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "unknown";
}

// Returns nothing when no value has this name.
template <typename Value, std::size_t count>
std::optional<Value> value_of(const EnumNames<count>& names, std::string_view name) noexcept {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Value>(found - names.begin());
}

}  // namespace ctxbroker::detail
