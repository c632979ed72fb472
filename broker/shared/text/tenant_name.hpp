// SPDX-License-Identifier: Apache-2.0
// Names that a policy knows: plug-in ids, and names of tenants.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace ctxbroker::detail {

constexpr bool is_id_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Counts the parts of letters, digits, '_' and '-', with '.' between them. 0: it is no such name.
constexpr std::size_t count_name_parts(std::string_view name) noexcept {
  std::size_t parts = 0;
  for (std::size_t from = 0; from <= name.size(); ++parts) {
    const std::size_t dot = std::min(name.find('.', from), name.size());
    const std::string_view part = name.substr(from, dot - from);
    if (part.empty() || !std::all_of(part.begin(), part.end(), is_id_character)) return 0;
    from = dot + 1;
  }
  return parts;
}

// Returns whether it is a plug-in's id, "com.example.blur", or a shorter name, "torch".
constexpr bool is_tenant_name(std::string_view name) noexcept {
  return count_name_parts(name) >= 1;
}

}  // namespace ctxbroker::detail
