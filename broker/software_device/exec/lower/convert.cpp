// cvt: put together from steps that extend, clamp, round and convert.
#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

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

bool is_integer(Type type) {
  return register_width(type) != 0 && type != Type::pred && !is_float(type) && type != Type::f16 &&
         type != Type::bf16 && type != Type::f16x2 && type != Type::bf16x2;
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
  if (type == Type::u8 || type == Type::b8) return Type::u16;
  return type == Type::s8 ? Type::s16 : type;
}

void cvt(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view integral = m.take_any({"rni", "rzi", "rmi", "rpi"});
  const std::string_view rounding = m.take_any({"rn", "rz", "rm", "rp"});
  const bool ftz = m.take("ftz"), saturate = m.take("sat");
  const Type to = m.take_type(), from = m.take_type();
  const bool known = (is_integer(to) || is_float(to)) && (is_integer(from) || is_float(from));
  if (!m.empty() || !known) b.unsupported();
  b.expect_operands(2, 2);
  ValueId value = b.any_source(b.operand(1), from);
  if (b.width(value) < bytes_of(from)) b.source(b.operand(1), from);  // says what is wrong
  const Operand& target = b.operand(0);
  const ValueId dst = b.any_destination(target);
  if (dst == no_value) return;
  if (b.width(dst) < bytes_of(to)) b.destination(target, to);

  if (is_integer(from) && is_integer(to)) {
    if (!integral.empty() || !rounding.empty() || ftz) b.unsupported();
    b.move(dst, integer_to_integer(b, value, from, to, saturate, b.width(dst)));
    return;
  }
  if (is_float(from)) {
    value = b.source(b.operand(1), from);
    if (ftz && from == Type::f32) {
      const ValueId flushed = b.temp(4);
      b.emit("flush.f32", flushed, {value});
      value = flushed;
    }
  }
  if (is_integer(to)) {
    if (integral.empty()) b.unsupported();
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
    if (!integral.empty()) b.unsupported();
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
  b.expect_operands(has_rest ? 4 : 3, has_rest ? 4 : 3);
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
    result = step("or.b32", result, step("shl.b32", rest, literal(2 * packed->bits)));
  }
  b.move(b.destination(b.operand(0), Type::b32), result);
}

void cvt_or_pack(Builder& b) {
  const auto& modifiers = b.instruction().modifiers;
  if (!modifiers.empty() && modifiers.front() == "pack") return pack(b);
  cvt(b);
}

}  // namespace

const Family convert_family[] = {{"cvt", cvt_or_pack}, {"", nullptr}};

}  // namespace ctxbroker::software::exec::lower
