// SPDX-License-Identifier: Apache-2.0
// The modifiers of an instruction, taken one by one: what is left over is refused.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/module.hpp"

namespace ctxbroker::software::exec::lower {

std::optional<ptx::Type> type_named(std::string_view name) noexcept;
// "f32", "s64": how tables and names of operations write it.
std::string_view name_of(ptx::Type type) noexcept;
std::string joined(std::string_view a, std::string_view b);  // "a.b"

bool is_float(ptx::Type type) noexcept;  // f32 and f64
bool is_half(ptx::Type type) noexcept;   // f16, bf16 and pairs of these
bool is_pair(ptx::Type type) noexcept;   // f16x2, bf16x2
// Of a pair: the type of each half. Any other type is its own.
ptx::Type element_of(ptx::Type type) noexcept;
bool is_signed(ptx::Type type) noexcept;
bool is_integer(ptx::Type type) noexcept;  // with or without a sign, of 8 to 64 bits
bool is_bits(ptx::Type type) noexcept;     // b16, b32, b64
// The type with the sign left out: s32 and u32 become b32.
ptx::Type bits_of(ptx::Type type) noexcept;
ptx::Type bits_of_width(std::uint8_t width) noexcept;

class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction);

  bool take(std::string_view name);
  // The first of these that is there, or "".
  std::string_view take_any(std::initializer_list<std::string_view> names);
  // Removes all that are in the list, and those that begin with "L1::" or "L2::".
  void ignore(std::initializer_list<std::string_view> names);
  // The next modifier that is a type; Type::none if there is none.
  ptx::Type take_type();
  bool empty() const { return left_.empty(); }

 private:
  std::vector<std::string_view> left_;
};

}  // namespace ctxbroker::software::exec::lower
