// SPDX-License-Identifier: Apache-2.0
// cvt: put together from steps that extend, clamp, round and convert.
#include <algorithm>

#include "exec/lower/families.hpp"
#include "exec/lower/half.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

std::uint32_t bytes_of(Type type) {
  return ptx::size_of(type);
}

std::string bits_name(std::uint8_t width) {
  return std::string(name_of(bits_of_width(width)));
}

// A register's width changed: extended with the sign of `type`, or cut.
ValueId resized(Builder& b, ValueId value, Type type, std::uint8_t to) {
  const std::uint8_t from = b.width(value);
  if (from == to) return value;
  const ValueId result = b.temp(to);
  if (from > to) {
    b.emit(joined(joined("truncate", bits_name(from)), bits_name(to)), result, {value});
  } else {
    const std::string kind = std::string(is_signed(type) ? "s" : "u") + std::to_string(from * 8);
    b.emit(joined(joined("extend", kind), bits_name(to)), result, {value});
  }
  return result;
}

// The value of `type` in the low bits of a register, extended to the whole register.
ValueId narrowed(Builder& b, ValueId value, Type type) {
  const std::uint8_t width = b.width(value);
  if (bytes_of(type) >= width) return value;
  const ValueId result = b.temp(width);
  b.emit(joined(joined("narrow", name_of(type)), bits_name(width)), result, {value});
  return result;
}

// Whether every value of `from` is one of `to`.
bool fits(Type from, Type to) {
  if (is_signed(from) && !is_signed(to)) return false;
  if (is_signed(from) == is_signed(to)) return bytes_of(from) <= bytes_of(to);
  return bytes_of(from) < bytes_of(to);
}

ValueId integer_to_integer(Builder& b, ValueId value, Type from, Type to, bool saturate,
                           std::uint8_t width) {
  value = narrowed(b, value, from);
  if (saturate && !fits(from, to)) {
    const ValueId wide = resized(b, value, from, 8), clamped = b.temp(8);
    b.emit(joined(joined("clamp", name_of(to)), is_signed(from) ? "s64" : "u64"), clamped, {wide});
    return resized(b, clamped, to, width);
  }
  if (bytes_of(to) < bytes_of(from) || bytes_of(to) < width) {
    // Cut to the type first, then extended to the register with the type's sign.
    const std::uint8_t natural = register_width(to);
    value = resized(b, value, from, natural);
    return resized(b, narrowed(b, value, to), to, width);
  }
  return resized(b, value, from, width);
}

// Integers of 8 and 16 bits share the conversions of 16.
Type at_least_16(Type type) {
  if (type == Type::u8) return Type::u16;
  return type == Type::s8 ? Type::s16 : type;
}

ValueId flushed(Builder& b, ValueId value) {
  const ValueId result = b.temp(4);
  b.emit("flush.f32", result, {value});
  return result;
}

// Any number but a half, as f64; what loses bits keeps a sign of them, to be rounded again.
ValueId as_f64(Builder& b, ValueId value, Type from) {
  if (from == Type::f64) return value;
  const ValueId result = b.temp(8);
  if (from == Type::u64 || from == Type::s64) {
    b.emit(joined("cvt.odd.f64", name_of(from)), result, {value});
    return result;
  }
  const Type wide = at_least_16(from);
  if (is_integer(from)) {
    value = resized(b, narrowed(b, value, from), from, register_width(wide));
  }
  b.emit(joined("cvt.f64", name_of(wide)), result, {value});
  return result;
}

struct Conversion {
  std::string_view integral, rounding;
  bool ftz;
  Limits limits;
  Type to, from;
};

// One number of any type as a half, 16 bits.
ValueId as_half(Builder& b, const Operand& operand, const Conversion& c) {
  ValueId value = b.any_source(operand, c.from);
  if (!is_integer(c.from) || b.width(value) < bytes_of(c.from)) value = b.source(operand, c.from);
  Type from = c.from;
  if (is_half(from)) {
    if (from == c.to && c.integral.empty() && !c.limits.saturate) return value;
    value = widened(b, value, from, Type::f32);
    from = Type::f32;
  } else if (from == Type::f32 && c.ftz) {
    value = flushed(b, value);
  }
  if (!c.integral.empty()) {
    const ValueId whole = b.temp(b.width(value));
    b.emit(joined(joined("round", c.integral), name_of(from)), whole, {value});
    value = whole;
  }
  return rounded(b, limited(b, as_f64(b, value, from), c.limits), c.to,
                 c.rounding.empty() ? "rn" : c.rounding);
}

// cvt.rn.f16.f32 and its like; of a pair, the first source is the upper half.
void to_half(Builder& b, const Conversion& c) {
  const std::size_t sources = is_pair(c.to) ? 2 : 1;
  b.check_operands(sources + 1, sources + 1);
  std::vector<ValueId> halves;
  for (std::size_t i = sources; i > 0; --i) halves.push_back(as_half(b, b.operand(i), c));
  join_halves(b, b.destination(b.operand(0), c.to), halves);
}

// Bits of a float's significand; 0 for an integer.
unsigned precision(Type type) {
  switch (element_of(type)) {
    case Type::f64:
      return 53;
    case Type::f32:
      return 24;
    case Type::f16:
      return 11;
    case Type::bf16:
      return 8;
    default:
      return 0;
  }
}

// Whether PTX has this conversion with these modifiers: the rules of ptxas 13.0.
bool exists(const Conversion& c) {
  const unsigned to = precision(c.to), from = precision(c.from);
  const bool to_float = to != 0, from_float = from != 0;
  const bool known = (to_float || is_integer(c.to)) && (from_float || is_integer(c.from));
  if (!known || is_pair(c.from)) return false;
  const bool has_bf16 = element_of(c.to) == Type::bf16 || c.from == Type::bf16;
  const bool has_f32 = c.to == Type::f32 || c.from == Type::f32;
  if (c.ftz && (!has_f32 || is_pair(c.to))) return false;
  if (has_bf16 && (bytes_of(c.to) == 1 || bytes_of(c.from) == 1)) return false;
  if (c.limits.saturate && has_bf16) return false;
  const bool rounds = !c.rounding.empty(), integral = !c.integral.empty();
  if (c.limits.relu || is_pair(c.to)) {
    const bool rounding = c.rounding == "rn" || c.rounding == "rz";
    return is_half(c.to) && c.from == Type::f32 && rounding && !integral && !c.limits.saturate;
  }
  if (!to_float && !from_float) {
    return !rounds && !integral && !(c.limits.saturate && fits(c.from, c.to));
  }
  if (!to_float) return integral && !rounds;
  if (!from_float) return rounds && !integral;
  if (c.to == c.from) return !rounds;
  if (integral) return false;
  if (is_half(c.to) && is_half(c.from)) return true;  // may round
  return to < from ? rounds : !rounds || c.from == Type::bf16;
}

void cvt(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view integral = m.take_any({"rni", "rzi", "rmi", "rpi"});
  const std::string_view rounding = m.take_any({"rn", "rz", "rm", "rp"});
  const bool ftz = m.take("ftz"), saturate = m.take("sat"), relu = m.take("relu");
  const Type to = m.take_type();
  Type from = m.take_type();
  const Conversion conversion{integral, rounding, ftz, {saturate, relu}, to, from};
  if (!m.empty() || !exists(conversion)) b.unsupported();
  if (is_half(to)) return to_half(b, conversion);
  b.check_operands(2, 2);
  ValueId value = b.any_source(b.operand(1), from);
  if (b.width(value) < bytes_of(from)) b.source(b.operand(1), from);  // says what is wrong
  const Operand& target = b.operand(0);
  const ValueId dst = b.any_destination(target);
  if (dst == no_value) return;
  if (b.width(dst) < bytes_of(to)) b.destination(target, to);

  if (is_integer(from) && is_integer(to)) {
    b.move(dst, integer_to_integer(b, value, from, to, saturate, b.width(dst)));
    return;
  }
  if (is_float(from)) {
    value = b.source(b.operand(1), from);
    if (ftz && from == Type::f32) value = flushed(b, value);
  } else if (is_half(from)) {
    // f32 takes every half as it is, and so any further step is that of f32.
    value = widened(b, b.source(b.operand(1), from), from, Type::f32);
    from = Type::f32;
  }
  if (is_integer(to)) {
    const std::string source_name(name_of(from));
    if (integral != "rzi") {
      const ValueId whole = b.temp(b.width(value));
      b.emit(joined(joined("round", integral), source_name), whole, {value});
      value = whole;
    }
    const std::uint8_t natural = register_width(to);
    const std::string op = joined(joined("cvt", name_of(to)), source_name);
    if (natural == b.width(dst)) {
      b.emit(op, dst, {value});
      return;
    }
    const ValueId number = b.temp(natural);
    b.emit(op, number, {value});
    b.move(dst, resized(b, number, to, b.width(dst)));
    return;
  }

  b.destination(target, to);
  if (is_integer(from)) {
    const Type wide = at_least_16(from);
    value = narrowed(b, value, from);
    value = resized(b, value, from, register_width(wide));
    const Rounding mode(b, rounding);
    b.emit(joined(joined("cvt", name_of(to)), name_of(wide)), dst, {value});
  } else if (from == to) {
    if (!integral.empty()) {
      b.emit(joined(joined("round", integral), name_of(to)), dst, {value});
    } else {
      b.move(dst, value);
    }
  } else {
    const Rounding mode(b, rounding);
    b.emit(joined(joined("cvt", name_of(to)), name_of(from)), dst, {value});
  }
  if (saturate) b.emit(joined("sat", name_of(to)), dst, {dst});
  if (ftz && to == Type::f32) b.emit("flush.f32", dst, {dst});
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c: b and above it a, saturated, and above both what c has. Of 16
// bits there is no c.
void pack(Builder& b) {
  Modifiers m(b.instruction());
  struct Packed {
    std::string_view name;
    unsigned bits;
    std::int64_t least, most;
  };
  constexpr Packed all[] = {
      {"u16", 16, 0, 65535}, {"s16", 16, -32768, 32767}, {"u8", 8, 0, 255}, {"s8", 8, -128, 127},
      {"u4", 4, 0, 15},      {"s4", 4, -8, 7},           {"u2", 2, 0, 3},   {"s2", 2, -2, 1}};
  m.take("pack");
  const Packed* packed = nullptr;
  for (const Packed& candidate : all) {
    if (packed == nullptr && m.take(candidate.name)) packed = &candidate;
  }
  const bool fits = m.take("sat") && packed != nullptr && m.take("s32");
  const bool has_rest = m.take("b32");
  if (!fits || !m.empty() || has_rest != (packed->bits != 16)) b.unsupported();
  b.check_operands(has_rest ? 4 : 3, has_rest ? 4 : 3);
  const auto literal = [&](std::int64_t value) {
    return b.literal(4, static_cast<std::uint64_t>(value));
  };
  const auto step = [&](std::string_view op, ValueId x, ValueId y) {
    const ValueId result = b.temp(4);
    b.emit(op, result, {x, y});
    return result;
  };
  const auto saturated = [&](const Operand& operand) {
    ValueId value = b.source(operand, Type::s32);
    value = step("max.s32", value, literal(packed->least));
    value = step("min.s32", value, literal(packed->most));
    return step("and.b32", value, literal((std::int64_t{1} << packed->bits) - 1));
  };
  const ValueId high = step("shl.b32", saturated(b.operand(1)), literal(packed->bits));
  ValueId result = step("or.b32", high, saturated(b.operand(2)));
  if (has_rest) {
    const ValueId rest = b.source(b.operand(3), Type::b32);
    result = step("or.b32", result, step("shl.b32", rest, literal(std::int64_t{2} * packed->bits)));
  }
  b.move(b.destination(b.operand(0), Type::b32), result);
}

// cvt.rna.tf32.f32: to the upper 19 bits, halves away from zero. What GPUs give for rn and rz,
// which only sm_90 has, is not known for NaN.
void to_tf32(Builder& b) {
  Modifiers m(b.instruction());
  const bool known = m.take("rna") && m.take("tf32") && m.take_type() == Type::f32;
  const bool to_finite = m.take("satfinite");
  if (!known || !m.empty()) b.unsupported();
  b.check_operands(2, 2);
  const auto step = [&](std::string_view op, ValueId x, ValueId y) {
    return b.computed(op, 4, {x, y});
  };
  // `amount` where the number is infinite or NaN, or only where it is not.
  const auto amount_where = [&](bool not_finite, std::uint64_t amount, ValueId number) {
    const ValueId magnitude = step("and.b32", number, b.literal(4, 0x7fffffff));
    const ValueId holds = b.computed(not_finite ? "setp.ge.u32" : "setp.lt.u32", 1,
                                     {magnitude, b.literal(4, 0x7f800000)});
    return b.computed("selp.b32", 4, {b.literal(4, amount), b.literal(4, 0), holds});
  };
  ValueId value = b.source(b.operand(1), Type::f32);
  value = step("add.b32", value, amount_where(false, 0x1000, value));
  value = step("and.b32", value, b.literal(4, 0xffffe000));
  if (to_finite) value = step("sub.b32", value, amount_where(true, 0x2000, value));
  b.move(b.destination(b.operand(0), Type::b32), value);
}

void any_cvt(Builder& b) {
  const auto& modifiers = b.instruction().modifiers;
  const auto has = [&](std::string_view name) {
    return std::find(modifiers.begin(), modifiers.end(), name) != modifiers.end();
  };
  if (has("pack")) return pack(b);
  if (has("tf32")) return to_tf32(b);
  cvt(b);
}

}  // namespace

const Family convert_family[] = {{"cvt", any_cvt}, {"", nullptr}};

}  // namespace ctxbroker::software::exec::lower
