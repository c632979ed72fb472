// SPDX-License-Identifier: Apache-2.0
#include "ptx/module.hpp"

#include <charconv>
#include <limits>
#include <system_error>

namespace ctxbroker::software::ptx {

namespace {

// Reads the number at the beginning, and returns where it ends. One that is too large is the
// largest one, so that it stays newer than all that is known.
template <typename Number>
const char* read_number(const char* text, const char* end, Number& number) noexcept {
  const auto read = std::from_chars(text, end, number);
  if (read.ec == std::errc::result_out_of_range) number = std::numeric_limits<Number>::max();
  return read.ptr;
}

}  // namespace

Version version_of(std::string_view text) noexcept {
  Version version;
  const char* const end = text.data() + text.size();
  const char* const major = read_number(text.data(), end, version.major);
  if (major != end && *major == '.') read_number(major + 1, end, version.minor);
  return version;
}

unsigned target_of(const Module& module) noexcept {
  const std::string_view text = module.target;
  unsigned target = 0;
  const std::size_t digits = text.find('_') + 1;
  read_number(text.data() + digits, text.data() + text.size(), target);
  return target;
}

std::uint32_t size_of(Type type) noexcept {
  switch (type) {
    case Type::none:
      return 0;
    case Type::pred:
    case Type::b8:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::b32:
    case Type::u32:
    case Type::s32:
    case Type::f16x2:
    case Type::bf16x2:
    case Type::f32:
      return 4;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
    case Type::b128:
      return 16;
  }
  return 0;
}

std::uint64_t Variable::size_bytes() const {
  return count * vector * size_of(type);
}

std::string Instruction::full_name() const {
  std::string name = opcode;
  for (const std::string& modifier : modifiers) name.append(".").append(modifier);
  return name;
}

}  // namespace ctxbroker::software::ptx
