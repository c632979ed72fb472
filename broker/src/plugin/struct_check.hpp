// SPDX-License-Identifier: Apache-2.0
// Checks structs from the other side of the ABI, which begin with their size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// A larger size is garbage.
inline constexpr std::uint32_t largest_struct = 65536;

// NOLINTBEGIN(bugprone-macro-parentheses): a type takes none
// Bytes of the struct up to and including this member.
#define CTXB_BYTES_THROUGH(type, member) \
  (offsetof(type, member) + sizeof(static_cast<type*>(nullptr)->member))
// NOLINTEND(bugprone-macro-parentheses)

// Returns whether the struct is there, is aligned, and has a size in the allowed range.
template <typename Struct>
bool is_valid(const Struct* given, std::size_t least_bytes) noexcept {
  return given != nullptr && reinterpret_cast<std::uintptr_t>(given) % alignof(Struct) == 0 &&
         given->size >= least_bytes && given->size <= largest_struct;
}

// Returns element `index` of an array whose elements have the first element's size. The caller has
// checked the first one with is_valid and is_step.
template <typename Struct>
const Struct* element(const Struct* first, std::size_t index) noexcept {
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  return reinterpret_cast<const Struct*>(bytes + index * first->size);
}

// Returns whether none of the functions in a table is null. After its size, the table has nothing
// else, up to `bytes`.
inline bool has_all_functions(const void* table, std::size_t bytes) noexcept {
  using Function = void (*)();
  for (std::size_t at = alignof(Function); at < bytes; at += sizeof(Function)) {
    Function function = nullptr;
    std::memcpy(&function, static_cast<const std::byte*>(table) + at, sizeof function);
    if (function == nullptr) return false;
  }
  return true;
}

// Hands over as much of a struct as the caller knows; its size stays.
template <typename Struct>
void hand_over(Struct filled, Struct* to) noexcept {
  filled.size = to->size;
  std::memcpy(to, &filled, std::min<std::size_t>(to->size, sizeof filled));
}

template <typename Struct>
bool is_step(const Struct* first) noexcept {
  return first->size % alignof(Struct) == 0;
}

}  // namespace ctxbroker::detail
