// SPDX-License-Identifier: Apache-2.0
#include "exec/lower/modifiers.hpp"

#include <algorithm>
#include <array>

namespace ctxbroker::software::exec::lower {
namespace {

using ptx::Type;

struct Named {
  std::string_view name;
  Type type;
};
constexpr std::array<Named, 20> types = {{
    {"pred", Type::pred}, {"b8", Type::b8},         {"b16", Type::b16}, {"b32", Type::b32},
    {"b64", Type::b64},   {"b128", Type::b128},     {"u8", Type::u8},   {"u16", Type::u16},
    {"u32", Type::u32},   {"u64", Type::u64},       {"s8", Type::s8},   {"s16", Type::s16},
    {"s32", Type::s32},   {"s64", Type::s64},       {"f16", Type::f16}, {"f16x2", Type::f16x2},
    {"bf16", Type::bf16}, {"bf16x2", Type::bf16x2}, {"f32", Type::f32}, {"f64", Type::f64},
}};

}  // namespace

std::optional<Type> type_named(std::string_view name) noexcept {
  for (const Named& named : types) {
    if (named.name == name) return named.type;
  }
  return std::nullopt;
}

std::string_view name_of(Type type) noexcept {
  for (const Named& named : types) {
    if (named.type == type) return named.name;
  }
  return "";
}

std::string joined(std::string_view a, std::string_view b) {
  return std::string(a).append(".").append(b);
}

bool is_float(Type type) noexcept {
  return type == Type::f32 || type == Type::f64;
}

bool is_half(Type type) noexcept {
  return element_of(type) == Type::f16 || element_of(type) == Type::bf16;
}

bool is_pair(Type type) noexcept {
  return type == Type::f16x2 || type == Type::bf16x2;
}

Type element_of(Type type) noexcept {
  if (type == Type::f16x2) return Type::f16;
  return type == Type::bf16x2 ? Type::bf16 : type;
}

bool is_signed(Type type) noexcept {
  return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

bool is_integer(Type type) noexcept {
  return is_signed(type) || type == Type::u8 || type == Type::u16 || type == Type::u32 ||
         type == Type::u64;
}

bool is_bits(Type type) noexcept {
  return type == Type::b16 || type == Type::b32 || type == Type::b64;
}

Type bits_of(Type type) noexcept {
  switch (type) {
    case Type::u8:
    case Type::s8:
      return Type::b8;
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return Type::b16;
    case Type::u32:
    case Type::s32:
    case Type::f32:
    case Type::f16x2:
    case Type::bf16x2:
      return Type::b32;
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return Type::b64;
    default:
      return type;
  }
}

Type bits_of_width(std::uint8_t width) noexcept {
  switch (width) {
    case 1:
      return Type::pred;
    case 2:
      return Type::b16;
    case 4:
      return Type::b32;
    default:
      return Type::b64;
  }
}

Modifiers::Modifiers(const ptx::Instruction& instruction)
    : left_(instruction.modifiers.begin(), instruction.modifiers.end()) {}

bool Modifiers::take(std::string_view name) {
  const auto found = std::find(left_.begin(), left_.end(), name);
  if (found == left_.end()) return false;
  left_.erase(found);
  return true;
}

std::string_view Modifiers::take_any(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (take(name)) return name;
  }
  return "";
}

void Modifiers::ignore(std::initializer_list<std::string_view> names) {
  std::erase_if(left_, [&](std::string_view modifier) {
    return std::find(names.begin(), names.end(), modifier) != names.end() ||
           modifier.starts_with("L1::") || modifier.starts_with("L2::");
  });
}

Type Modifiers::take_type() {
  for (auto at = left_.begin(); at != left_.end(); ++at) {
    if (const auto type = type_named(*at)) {
      left_.erase(at);
      return *type;
    }
  }
  return Type::none;
}

}  // namespace ctxbroker::software::exec::lower
