// Size-first structs of the other side: is this one there, aligned, and at least as long as version
// 1.0 of the ABI had it?
#pragma once

#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// More is no struct but garbage.
inline constexpr std::uint32_t largest_struct = 65536;

// NOLINTBEGIN(bugprone-macro-parentheses): a type takes none
// Bytes of the struct up to and with its last member of version 1.0.
#define CTXB_BYTES_THROUGH(type, member) \
  (offsetof(type, member) + sizeof(static_cast<type*>(nullptr)->member))
// NOLINTEND(bugprone-macro-parentheses)

// For a struct that stands alone.
template <typename Struct>
bool is_sound(const Struct* given, std::size_t least_bytes) noexcept {
  return given != nullptr && reinterpret_cast<std::uintptr_t>(given) % alignof(Struct) == 0 &&
         given->size >= least_bytes && given->size <= largest_struct;
}

// Element `index` of an array whose step is its first element's size. The caller has checked the
// first with is_sound and is_step.
template <typename Struct>
const Struct* element(const Struct* first, std::size_t index) noexcept {
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  return reinterpret_cast<const Struct*>(bytes + index * first->size);
}

template <typename Struct>
bool is_step(const Struct* first) noexcept {
  return first->size % alignof(Struct) == 0;
}

}  // namespace ctxbroker::detail
