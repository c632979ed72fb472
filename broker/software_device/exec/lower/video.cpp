// SPDX-License-Identifier: Apache-2.0
// Video instructions: numbers from parts of registers, computed in 64 bits as the PTX ISA says.
// GPUs have no such instructions any more, but for vabsdiff4. What ptxas 13.0 makes of the scalar
// ones computes something else in places: .sat where the destination is a part, .min and .max, .h1
// as the destination, and vmad of a whole u32 of 2^31 or more with .sat or a shift.
#include <algorithm>

#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

ValueId wide_step(Builder& b, std::string_view op, std::initializer_list<ValueId> sources) {
  return b.computed(op, 8, sources);
}

// An operand and which parts of it are meant: of "%r1.h10" the unit 'h' and the digits "10", the
// lower half's last. Without a selector the whole is meant: no unit, no digits.
struct Selected {
  Operand operand;
  char unit = 0;
  std::string digits = {};
  bool negated = false;
};

Selected selected(Builder& b, std::size_t index) {
  Selected result{b.operand(index)};
  result.negated = result.operand.negated;
  result.operand.negated = false;
  std::string& name = result.operand.name;
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos && !b.is_register(result.operand)) {
    result.unit = name[dot + 1];
    result.digits = name.substr(dot + 2);
    name.resize(dot);
  }
  if (b.is_register(result.operand)) return result;
  if (index == 0 || result.operand.kind != Operand::Kind::integer) {
    b.fail("an operand of " + b.instruction().full_name() + " must be a register");
  }
  return result;
}

[[noreturn]] void refuse_parts(const Builder& b, const Selected& from) {
  if (from.unit == 0) b.fail(b.instruction().full_name() + " has no constant operands");
  b.fail(b.instruction().full_name() + " has no part ." + from.unit + from.digits + " of '" +
         from.operand.name + "'");
}

void refuse_any_part(const Builder& b, const Selected& from) {
  if (from.unit != 0) refuse_parts(b, from);
}

unsigned bits_of_unit(char unit) {
  return unit == 'b' ? 8 : unit == 'h' ? 16 : 32;
}

// A part of a 32-bit value, with its sign or without, in 64 bits.
ValueId extended(Builder& b, ValueId whole, bool is_signed, unsigned at = 0, unsigned bits = 32) {
  if (bits < 32) {
    whole = b.computed(is_signed ? "bfe.s32" : "bfe.u32", 4,
                       {whole, b.literal(4, at), b.literal(4, bits)});
  }
  return wide_step(b, is_signed ? "extend.s32.b64" : "extend.u32.b64", {whole});
}

// The digit of a scalar instruction's selector; 0 if there is none.
unsigned one_part(const Builder& b, const Selected& from) {
  if (from.unit == 0) return 0;
  const unsigned parts = from.unit == 'b' ? 4 : from.unit == 'h' ? 2 : 0;
  const bool fits = from.digits.size() == 1 && static_cast<unsigned>(from.digits[0] - '0') < parts;
  if (!fits) refuse_parts(b, from);
  return static_cast<unsigned>(from.digits[0] - '0');
}

ValueId scalar_source(Builder& b, const Selected& from, Type type) {
  const unsigned bits = bits_of_unit(from.unit), at = one_part(b, from) * bits;
  return extended(b, b.source(from.operand, Type::b32), is_signed(type), at, bits);
}

ValueId clamped(Builder& b, ValueId wide, bool to_signed, unsigned bits) {
  const std::string type = (to_signed ? "s" : "u") + std::to_string(bits);
  return wide_step(b, joined(joined("clamp", type), "s64"), {wide});
}

ValueId low_word(Builder& b, ValueId wide) {
  return b.computed("truncate.b64.b32", 4, {wide});
}

ValueId inserted(Builder& b, ValueId part, ValueId into, unsigned at, unsigned bits) {
  return b.computed("bfi.b32", 4, {part, into, b.literal(4, at), b.literal(4, bits)});
}

bool is_word(Type type) {
  return type == Type::u32 || type == Type::s32;
}

// What the instruction is called without "2" or "4", and what it needs besides its types.
struct Primary {
  std::string_view name;
  std::string_view mode;  // of a shift: clamp or wrap; of vset: the comparison
  bool is_shift = false, is_set = false;
};

Primary read_primary(Builder& b, Modifiers& m) {
  Primary primary{b.instruction().opcode, "", false, false};
  if (primary.name.ends_with('2') || primary.name.ends_with('4')) primary.name.remove_suffix(1);
  primary.is_shift = primary.name == "vshl" || primary.name == "vshr";
  primary.is_set = primary.name == "vset";
  if (primary.is_shift) primary.mode = m.take_any({"clamp", "wrap"});
  if (primary.is_set) primary.mode = m.take_any({"eq", "ne", "lt", "le", "gt", "ge"});
  if ((primary.is_shift || primary.is_set) && primary.mode.empty()) b.unsupported();
  return primary;
}

struct WordTypes {
  Type result, x, y;
};

WordTypes read_types(Builder& b, Modifiers& m, const Primary& primary) {
  WordTypes types{};
  types.result = primary.is_set ? Type::u32 : m.take_type();
  types.x = m.take_type();
  types.y = m.take_type();
  const bool fits = is_word(types.result) && is_word(types.x) && is_word(types.y) &&
                    (!primary.is_shift || types.y == Type::u32);
  if (!fits) b.unsupported();
  return types;
}

// The result has 34 bits.
ValueId shifted(Builder& b, const Primary& primary, ValueId x, ValueId y) {
  const bool clamps = primary.mode == "clamp";
  const ValueId by = b.computed(clamps ? "min.u32" : "and.b32", 4,
                                {low_word(b, y), b.literal(4, clamps ? 32 : 31)});
  if (primary.name == "vshr") return wide_step(b, "shr.s64", {x, by});
  const ValueId unused = b.literal(4, 64 - 34);
  const ValueId at_top = wide_step(b, "shl.b64", {wide_step(b, "shl.b64", {x, by}), unused});
  return wide_step(b, "shr.s64", {at_top, unused});
}

// The average, rounded away from zero.
ValueId average(Builder& b, ValueId x, ValueId y) {
  const ValueId sum = wide_step(b, "add.b64", {x, y});
  const ValueId is_negative = wide_step(b, "shr.u64", {sum, b.literal(4, 63)});
  const ValueId one_more = wide_step(b, "add.b64", {sum, b.literal(8, 1)});
  return wide_step(b, "shr.s64",
                   {wide_step(b, "sub.b64", {one_more, is_negative}), b.literal(4, 1)});
}

ValueId calculated(Builder& b, const Primary& primary, ValueId x, ValueId y) {
  if (primary.is_shift) return shifted(b, primary, x, y);
  if (primary.is_set) {
    const bool on_bits = primary.mode == "eq" || primary.mode == "ne";
    const ValueId holds = b.temp(1);
    b.emit(joined(joined("setp", primary.mode), on_bits ? "b64" : "s64"), holds, {x, y});
    return wide_step(b, "selp.b64", {b.literal(8, 1), b.literal(8, 0), holds});
  }
  if (primary.name == "vavrg") return average(b, x, y);
  if (primary.name == "vabsdiff") {
    return wide_step(b, "abs.s64", {wide_step(b, "sub.b64", {x, y})});
  }
  constexpr std::pair<std::string_view, std::string_view> plain[] = {
      {"vadd", "add.b64"}, {"vsub", "sub.b64"}, {"vmin", "min.s64"}, {"vmax", "max.s64"}};
  const auto* const found = std::find_if(std::begin(plain), std::end(plain), [&](const auto& row) {
    return row.first == primary.name;
  });
  if (found == std::end(plain)) b.unsupported();
  return wide_step(b, found->second, {x, y});
}

// vadd.s32.u32.s32.sat.max d, a.b0, b.h1, c; or without a second operation d.b2, a, b, c.
void scalar(Builder& b) {
  Modifiers m(b.instruction());
  const Primary primary = read_primary(b, m);
  const WordTypes types = read_types(b, m, primary);
  const bool saturates = !primary.is_set && m.take("sat");
  const std::string_view second = m.take_any({"add", "min", "max"});
  if (!m.empty()) b.unsupported();
  const Selected to = selected(b, 0);
  const unsigned bits = bits_of_unit(to.unit), at = one_part(b, to) * bits;
  const bool merges = to.unit != 0;
  if (merges && !second.empty()) {
    b.fail(b.instruction().full_name() + " has a second operation, and so no part of '" +
           to.operand.name + "'");
  }
  b.check_operands(merges || !second.empty() ? 4 : 3, 4);
  ValueId value = calculated(b, primary, scalar_source(b, selected(b, 1), types.x),
                             scalar_source(b, selected(b, 2), types.y));
  if (saturates) value = clamped(b, value, is_signed(types.result), bits);
  ValueId other = no_value;  // without a second operation or a part it is not used
  if (b.instruction().operands.size() == 4) {
    const Selected c = selected(b, 3);
    refuse_any_part(b, c);
    other = b.source(c.operand, Type::b32);
  }
  if (second == "min" || second == "max") {
    value =
        wide_step(b, joined(second, "s64"), {value, extended(b, other, is_signed(types.result))});
  }
  ValueId result = low_word(b, value);
  if (second == "add") result = b.computed("add.b32", 4, {result, other});
  if (merges) result = inserted(b, result, other, at, bits);
  b.move(b.destination(to.operand, Type::b32), result);
}

// vmad.s32.u32.s32.sat.shr7 d, -a.b0, b.h1, c; the product or c may be negated, or 1 is added.
void multiply_add(Builder& b) {
  Modifiers m(b.instruction());
  const WordTypes types = read_types(b, m, {"vmad", "", false, false});
  const bool saturates = m.take("sat"), adds_one = m.take("po");
  const std::string_view scale = m.take_any({"shr7", "shr15"});
  if (!m.empty()) b.unsupported();
  b.check_operands(4, 4);
  const Selected to = selected(b, 0), x = selected(b, 1), y = selected(b, 2), c = selected(b, 3);
  refuse_any_part(b, to);
  refuse_any_part(b, c);
  const bool negates_product = x.negated != y.negated;
  if (negates_product && c.negated) {
    b.fail(b.instruction().full_name() + " can negate the product or what is added, and not both");
  }
  if (adds_one && (negates_product || c.negated)) b.unsupported();
  const bool is_signed_result =
      is_signed(types.x) || is_signed(types.y) || negates_product || c.negated;
  const ValueId product =
      wide_step(b, "mul.lo.b64", {scalar_source(b, x, types.x), scalar_source(b, y, types.y)});
  const ValueId other = scalar_source(b, c, is_signed_result ? Type::s32 : Type::u32);
  ValueId value = negates_product ? wide_step(b, "sub.b64", {other, product})
                  : c.negated     ? wide_step(b, "sub.b64", {product, other})
                                  : wide_step(b, "add.b64", {product, other});
  if (adds_one) value = wide_step(b, "add.b64", {value, b.literal(8, 1)});
  if (!scale.empty()) {
    value = wide_step(b, is_signed_result ? "shr.s64" : "shr.u64",
                      {value, b.literal(4, scale == "shr7" ? 7 : 15)});
  }
  if (saturates) {
    value = is_signed_result ? clamped(b, value, true, 32) : wide_step(b, "clamp.u32.u64", {value});
  }
  b.move(b.destination(to.operand, Type::b32), low_word(b, value));
}

// Which of the eight bytes or four halves of two registers are meant, the lowest place first.
std::string source_parts(const Builder& b, const Selected& from, std::size_t parts, char first) {
  std::string digits = from.digits;
  if (from.unit == 0) {
    for (std::size_t i = parts; i > 0; --i) digits += static_cast<char>(first + i - 1);
  }
  const bool fits = (from.unit == 0 || from.unit == (parts == 2 ? 'h' : 'b')) &&
                    from.operand.kind == Operand::Kind::reg && digits.size() == parts &&
                    std::all_of(digits.begin(), digits.end(), [&](char digit) {
                      return digit >= '0' && static_cast<std::size_t>(digit - '0') < 2 * parts;
                    });
  if (!fits) refuse_parts(b, from);
  return {digits.rbegin(), digits.rend()};
}

std::string target_parts(const Builder& b, const Selected& to, std::size_t parts) {
  if (to.unit == 0) return parts == 2 ? "01" : "0123";
  const bool descends = std::is_sorted(to.digits.rbegin(), to.digits.rend()) &&
                        std::adjacent_find(to.digits.begin(), to.digits.end()) == to.digits.end();
  const bool fits = to.unit == (parts == 2 ? 'h' : 'b') && !to.digits.empty() && descends &&
                    to.digits.back() >= '0' &&
                    static_cast<std::size_t>(to.digits.front() - '0') < parts;
  if (!fits) refuse_parts(b, to);
  return {to.digits.rbegin(), to.digits.rend()};
}

// vadd4.u32.u32.u32.sat d.b310, a.b3210, b.b7654, c: each part alone, the others from c. Or with
// .add in place of .sat: the sum of these parts and c.
void parallel(Builder& b) {
  Modifiers m(b.instruction());
  const std::size_t parts = b.instruction().opcode.back() == '2' ? 2 : 4;
  const unsigned bits = parts == 2 ? 16 : 8;
  const Primary primary = read_primary(b, m);
  const WordTypes types = read_types(b, m, primary);
  const bool saturates = !primary.is_set && m.take("sat"), adds = m.take("add");
  if (!m.empty() || (saturates && adds)) b.unsupported();
  b.check_operands(4, 4);
  const Selected to = selected(b, 0), x = selected(b, 1), y = selected(b, 2), c = selected(b, 3);
  refuse_any_part(b, c);
  if (c.operand.kind != Operand::Kind::reg) refuse_parts(b, c);
  const std::string x_parts = source_parts(b, x, parts, '0');
  const std::string y_parts = source_parts(b, y, parts, static_cast<char>('0' + parts));
  const ValueId registers[] = {b.source(x.operand, Type::b32), b.source(y.operand, Type::b32)};
  const auto part = [&](char digit, Type type) {
    const auto place = static_cast<unsigned>(digit - '0'), count = static_cast<unsigned>(parts);
    return extended(b, registers[place / count], is_signed(type), place % count * bits, bits);
  };
  ValueId result = b.source(c.operand, Type::b32);
  for (const char target : target_parts(b, to, parts)) {
    const auto place = static_cast<unsigned>(target - '0');
    ValueId value =
        calculated(b, primary, part(x_parts[place], types.x), part(y_parts[place], types.y));
    if (saturates) value = clamped(b, value, is_signed(types.result), bits);
    value = low_word(b, value);
    result = adds ? b.computed("add.b32", 4, {result, value})
                  : inserted(b, value, result, place * bits, bits);
  }
  b.move(b.destination(to.operand, Type::b32), result);
}

}  // namespace

const Family video_family[] = {
    {"vadd", scalar},       {"vsub", scalar},        {"vabsdiff", scalar},    {"vmin", scalar},
    {"vmax", scalar},       {"vshl", scalar},        {"vshr", scalar},        {"vset", scalar},
    {"vmad", multiply_add}, {"vadd2", parallel},     {"vadd4", parallel},     {"vsub2", parallel},
    {"vsub4", parallel},    {"vavrg2", parallel},    {"vavrg4", parallel},    {"vmin2", parallel},
    {"vmin4", parallel},    {"vmax2", parallel},     {"vmax4", parallel},     {"vset2", parallel},
    {"vset4", parallel},    {"vabsdiff2", parallel}, {"vabsdiff4", parallel}, {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
