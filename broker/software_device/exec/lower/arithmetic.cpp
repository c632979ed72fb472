// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic, and the entry points that integer and floating-point types share.
#include <array>

#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {

// Floating-point side, in float.cpp.
void lower_float_arithmetic(Builder& b, Modifiers& m, Type type);

namespace {

// dst, then `count` sources, all of one type.
void uniform(Builder& b, const std::string& op, Type type, std::size_t count) {
  b.check_operands(count + 1, count + 1);
  std::array<ValueId, 3> sources = {no_value, no_value, no_value};
  for (std::size_t i = 0; i < count; ++i) sources[i] = b.source(b.operand(i + 1), type);
  const ValueId dst = b.destination(b.operand(0), type);
  if (count == 1) {
    b.emit(op, dst, {sources[0]});
  } else if (count == 2) {
    b.emit(op, dst, {sources[0], sources[1]});
  } else {
    b.emit(op, dst, {sources[0], sources[1], sources[2]});
  }
}

void finish(Builder& b, const Modifiers& m) {
  if (!m.empty()) b.unsupported();
}

// The same where the type is an integer. A carry needs one of 32 bits or more.
void finish(Builder& b, const Modifiers& m, Type type, bool carries = false) {
  finish(b, m);
  if (!is_integer(type) || (carries && register_width(type) < 4)) b.unsupported();
}

ValueId carry_flag(Builder& b) {
  auto& registers = b.scope().registers;
  const auto [place, fresh] = registers.try_emplace("(carry)", no_value);
  if (fresh) place->second = b.add_value(1, false);
  return place->second;
}

// add, sub with .cc, addc, subc: the sum reads the old carry, so the new one is set after it, and
// the destination last, since it may be a source too. A subtraction adds the complement and 1.
void extended(Builder& b, const std::string& base, Type type, bool reads, bool writes) {
  b.check_operands(3, 3);
  const Type bits = bits_of(type);
  const std::string width(name_of(bits));
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId flag = carry_flag(b);
  const bool adds = base == "add";
  const ValueId in = reads ? flag : b.literal(1, adds ? 0 : 1);
  const ValueId dst = b.destination(b.operand(0), type);
  const ValueId sum = b.temp(b.width(dst));
  b.emit(joined(adds ? "addc" : "subc", width), sum, {x, y, in});
  if (writes) b.emit(joined(adds ? "addc.carry" : "subc.carry", width), flag, {x, y, in});
  b.move(dst, sum);
}

void add_or_sub(Builder& b) {
  Modifiers m(b.instruction());
  const std::string opcode = b.instruction().opcode;
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  if (m.take("cc")) {
    finish(b, m, type, true);
    return extended(b, opcode, type, false, true);
  }
  const bool saturate = m.take("sat");
  finish(b, m, type);
  if (saturate) return uniform(b, joined(opcode, joined("sat", name_of(type))), type, 2);
  uniform(b, joined(opcode, name_of(bits_of(type))), type, 2);
}

void add_or_sub_with_carry(Builder& b) {
  Modifiers m(b.instruction());
  const bool carry_out = m.take("cc");
  const Type type = m.take_type();
  finish(b, m, type, true);
  extended(b, b.instruction().opcode.substr(0, 3), type, true, carry_out);
}

Type twice(Builder& b, Type type) {
  switch (type) {
    case Type::u16:
      return Type::u32;
    case Type::s16:
      return Type::s32;
    case Type::u32:
      return Type::u64;
    case Type::s32:
      return Type::s64;
    default:
      b.unsupported();
  }
}

// The name of a product: its low half has no sign.
std::string product(std::string_view opcode, std::string_view part, Type type) {
  return joined(joined(opcode, part), name_of(part == "lo" ? bits_of(type) : type));
}

void mul(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  const std::string_view part = m.take_any({"lo", "hi", "wide"});
  finish(b, m, type);
  if (part.empty()) b.unsupported();
  if (part != "wide") return uniform(b, product("mul", part, type), type, 2);
  b.check_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  b.emit(product("mul", part, type), b.destination(b.operand(0), twice(b, type)), {x, y});
}

// The extended-precision forms: the product, then an addition with carry.
void mad_with_carry(Builder& b, std::string_view part, Type type, bool reads, bool writes) {
  b.check_operands(4, 4);
  if (part.empty() || part == "wide") b.unsupported();
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId z = b.source(b.operand(3), type);
  const ValueId dst = b.destination(b.operand(0), type);
  const std::string width(name_of(bits_of(type)));
  const ValueId flag = carry_flag(b);
  const ValueId in = reads ? flag : b.literal(1, 0);
  const ValueId half = b.temp(b.width(dst)), sum = b.temp(b.width(dst));
  b.emit(product("mul", part, type), half, {x, y});
  b.emit(joined("addc", width), sum, {half, z, in});
  if (writes) b.emit(joined("addc.carry", width), flag, {half, z, in});
  b.move(dst, sum);
}

void mad(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  const std::string_view part = m.take_any({"lo", "hi", "wide"});
  const bool carry_out = m.take("cc");
  const bool reads = b.instruction().opcode == "madc";
  const bool saturate = m.take("sat");
  finish(b, m, type, carry_out || reads);
  if (part.empty() || (saturate && (carry_out || reads))) b.unsupported();
  if (carry_out || reads) return mad_with_carry(b, part, type, reads, carry_out);
  if (saturate)
    return uniform(b, joined(joined("mad", part), joined("sat", name_of(type))), type, 3);
  if (part != "wide") return uniform(b, product("mad", part, type), type, 3);
  b.check_operands(4, 4);
  const Type wide = twice(b, type);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId z = b.source(b.operand(3), wide);
  b.emit(product("mad", part, type), b.destination(b.operand(0), wide), {x, y, z});
}

void mul24(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  const std::string_view part = m.take_any({"lo", "hi"});
  finish(b, m);
  const std::string& opcode = b.instruction().opcode;
  uniform(b, joined(joined(opcode, part), name_of(type)), type, opcode == "mad24" ? 3 : 2);
}

void div(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  finish(b, m);
  uniform(b, joined("div", name_of(type)), type, 2);
}

void two_sources(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  finish(b, m);
  uniform(b, joined(b.instruction().opcode, name_of(type)), type, 2);
}

void one_source(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (is_float(type) || is_half(type)) return lower_float_arithmetic(b, m, type);
  finish(b, m);
  uniform(b, joined(b.instruction().opcode, name_of(type)), type, 1);
}

void sad(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  finish(b, m);
  uniform(b, joined("sad", name_of(type)), type, 3);
}

void dot_product(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view part = m.take_any({"lo", "hi"});
  const Type first = m.take_type(), second = m.take_type();
  finish(b, m);
  b.check_operands(4, 4);
  const bool any_signed = is_signed(first) || is_signed(second);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  const ValueId z = b.source(b.operand(3), any_signed ? Type::s32 : Type::u32);
  std::string op = b.instruction().opcode;
  if (!part.empty()) op = joined(op, part);
  b.emit(joined(joined(op, name_of(first)), name_of(second)),
         b.destination(b.operand(0), Type::b32), {x, y, z});
}

}  // namespace

const Family arithmetic_family[] = {
    {"add", add_or_sub},
    {"sub", add_or_sub},
    {"addc", add_or_sub_with_carry},
    {"subc", add_or_sub_with_carry},
    {"mul", mul},
    {"mad", mad},
    {"madc", mad},
    {"mul24", mul24},
    {"mad24", mul24},
    {"div", div},
    {"rem", two_sources},
    {"min", two_sources},
    {"max", two_sources},
    {"abs", one_source},
    {"neg", one_source},
    {"sad", sad},
    {"dp4a", dot_product},
    {"dp2a", dot_product},
    {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
