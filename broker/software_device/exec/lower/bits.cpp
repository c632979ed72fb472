// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and bit fields; comparisons and selections.
#include "exec/lower/families.hpp"
#include "exec/lower/half.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

Type only_type(Builder& b, Modifiers& m) {
  const Type type = m.take_type();
  if (!m.empty() || type == Type::none) b.unsupported();
  return type;
}

void logic(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), type), {x, y});
}

void invert(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), type), {x});
}

void shift(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), by = b.source(b.operand(2), Type::u32);
  const bool left = b.instruction().opcode == "shl";
  if (!is_bits(type) && (left || !is_integer(type))) b.unsupported();
  // shl knows no sign; shr.b is shr.u.
  std::string op = joined("shl", name_of(bits_of(type)));
  if (!left) {
    op = is_signed(type) ? joined("shr", name_of(type))
                         : std::string("shr.u").append(name_of(bits_of(type)).substr(1));
  }
  b.emit(op, b.destination(b.operand(0), type), {x, by});
}

void funnel_shift(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view side = m.take_any({"l", "r"}), mode = m.take_any({"wrap", "clamp"});
  if (only_type(b, m) != Type::b32 || side.empty() || mode.empty()) b.unsupported();
  b.check_operands(4, 4);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  const ValueId by = b.source(b.operand(3), Type::u32);
  b.emit(joined(joined("shf", side), joined(mode, "b32")), b.destination(b.operand(0), Type::b32),
         {x, y, by});
}

// popc, clz: a 32-bit count of a value of any width.
void count(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), Type::u32),
         {x});
}

void bfind(Builder& b) {
  Modifiers m(b.instruction());
  const bool amount = m.take("shiftamt");
  const Type type = only_type(b, m);
  b.check_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(amount ? "bfind.shiftamt" : "bfind", name_of(type)),
         b.destination(b.operand(0), Type::u32), {x});
}

// A position or a length in bits.
ValueId field_bound(Builder& b, const Operand& operand) {
  b.expect_constant_up_to(255, operand);
  return b.source(operand, Type::u32);
}

void bfe(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(4, 4);
  const ValueId x = b.source(b.operand(1), type);
  const ValueId at = field_bound(b, b.operand(2)), size = field_bound(b, b.operand(3));
  b.emit(joined("bfe", name_of(type)), b.destination(b.operand(0), type), {x, at, size});
}

void bfi(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.check_operands(5, 5);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId at = field_bound(b, b.operand(3)), size = field_bound(b, b.operand(4));
  b.emit(joined("bfi", name_of(type)), b.destination(b.operand(0), type), {x, y, at, size});
}

// bmsk, szext: a mode, two 32-bit sources.
void masked(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view mode = m.take_any({"wrap", "clamp"});
  const Type type = only_type(b, m);
  b.check_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), Type::u32);
  b.emit(joined(joined(b.instruction().opcode, mode), name_of(type)),
         b.destination(b.operand(0), type), {x, y});
}

void prmt(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view mode = m.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (only_type(b, m) != Type::b32) b.unsupported();
  b.check_operands(4, 4);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  const ValueId z = b.source(b.operand(3), Type::b32);
  b.emit(mode.empty() ? "prmt.b32" : joined("prmt.b32", mode),
         b.destination(b.operand(0), Type::b32), {x, y, z});
}

void lop3(Builder& b) {
  Modifiers m(b.instruction());
  if (only_type(b, m) != Type::b32) b.unsupported();
  b.check_operands(5, 5);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  if (b.operand(4).kind != Operand::Kind::integer)
    b.fail("the table of lop3.b32 must be a constant");
  const ValueId z = b.source(b.operand(3), Type::b32), table = b.source(b.operand(4), Type::b32);
  b.emit("lop3.b32", b.destination(b.operand(0), Type::b32), {x, y, z, table});
}

// --- comparisons -----------------------------------------------------------------------------

const std::initializer_list<std::string_view> comparisons = {
    "eq", "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi",
    "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

std::string comparison_op(Builder& b, std::string_view comparison, bool ftz, Type type) {
  if (is_float(type)) {
    return joined(joined("setp", comparison),
                  ftz ? joined("ftz", name_of(type)) : std::string(name_of(type)));
  }
  if (ftz) b.unsupported();
  if (comparison == "eq" || comparison == "ne") {
    return joined(joined("setp", comparison), name_of(bits_of(type)));
  }
  // lo, ls, hi, hs: the unsigned comparisons by another name.
  constexpr std::pair<std::string_view, std::string_view> unsigned_names[] = {
      {"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
  for (const auto& [name, plain] : unsigned_names) {
    if (comparison == name) {
      if (!is_integer(type) || is_signed(type)) b.unsupported();
      return std::string("setp.").append(plain).append(".u").append(
          name_of(bits_of(type)).substr(1));
    }
  }
  return joined(joined("setp", comparison), name_of(type));
}

// What setp and set have in common: a comparison, or one for each half of a pair, and a predicate
// that the results may be combined with.
struct Comparison {
  std::string_view name, combine;
  bool ftz;
  Type type;
};

Comparison read_comparison(Modifiers& m) {
  return {m.take_any(comparisons), m.take_any({"and", "or", "xor"}), m.take("ftz"), Type::none};
}

// Predicates, the lower half's first.
std::vector<ValueId> compared(Builder& b, const Comparison& c) {
  const bool is_f16 = element_of(c.type) == Type::f16;
  if (is_half(c.type) && c.ftz && !is_f16) b.unsupported();
  const std::size_t operands = c.combine.empty() ? 3 : 4;
  b.check_operands(operands, operands);
  const Type wide = is_half(c.type) ? Type::f32 : c.type;
  const std::string op = comparison_op(b, c.name, c.ftz && !is_half(c.type), wide);
  const auto x = halves_of(b, b.source(b.operand(1), c.type), c.type);
  const auto y = halves_of(b, b.source(b.operand(2), c.type), c.type);
  std::vector<ValueId> results;
  for (std::size_t i = 0; i < x.size(); ++i) {
    results.push_back(b.temp(1));
    if (is_half(c.type)) {
      const ValueId wide_x = widened(b, x[i], c.type, Type::f32, c.ftz);
      b.emit(op, results.back(), {wide_x, widened(b, y[i], c.type, Type::f32, c.ftz)});
    } else {
      b.emit(op, results.back(), {x[i], y[i]});
    }
  }
  return results;
}

ValueId combined(Builder& b, const Comparison& c, ValueId holds, ValueId other) {
  if (c.combine.empty()) return holds;
  const ValueId result = b.temp(1);
  b.emit(joined(c.combine, "pred"), result, {holds, other});
  return result;
}

// setp p|q: q is the opposite of p, or of a pair the upper half's, which may be left out.
void setp(Builder& b) {
  Modifiers m(b.instruction());
  Comparison c = read_comparison(m);
  c.type = only_type(b, m);
  const Operand& to = b.operand(0);
  const bool pair = to.kind == Operand::Kind::reg_pair;
  std::vector<ValueId> results = compared(b, c);
  if (is_half(c.type) && !is_pair(c.type) && pair) {
    b.fail(b.instruction().full_name() + " has one predicate, and not p|q");
  }
  if (pair && results.size() == 1) {
    results.push_back(b.temp(1));
    b.emit("not.pred", results[1], {results[0]});
  }
  ValueId other = no_value;
  if (!c.combine.empty()) {
    // It is read before either result is written, because it may be one of them.
    other = b.temp(1);
    b.move(other, b.predicate(b.operand(3)));
  }
  if (!pair) results.resize(1);
  for (ValueId& result : results) result = combined(b, c, result, other);
  if (!pair) return b.move(b.destination(to, Type::pred), results[0]);
  for (std::size_t i = 0; i < 2; ++i) {
    b.move(b.destination(to.elements.at(i), Type::pred), results[i]);
  }
}

// What set writes where the comparison holds: all ones or 1.0, of one half at a time of a pair.
std::uint64_t held(Type result, bool is_of_pair) {
  switch (element_of(result)) {
    case Type::f32:
      return 0x3f800000U;
    case Type::f16:
      return 0x3c00;
    case Type::bf16:
      return 0x3f80;
    default:
      return is_of_pair ? 0xffffU : ~0U;
  }
}

void set(Builder& b) {
  Modifiers m(b.instruction());
  Comparison c = read_comparison(m);
  const Type result = m.take_type();
  c.type = only_type(b, m);
  const bool is_word = result == Type::u32 || result == Type::s32;
  const bool fits = is_pair(c.type)   ? is_word || result == c.type
                    : is_half(c.type) ? is_word || result == c.type || result == Type::bf16 ||
                                            result == Type::u16 || result == Type::s16
                                      : is_word || result == Type::f32 || result == Type::f16 ||
                                            result == Type::bf16;
  if (!fits || (c.ftz && result == Type::bf16)) b.unsupported();
  std::vector<ValueId> halves;
  for (const ValueId holds : compared(b, c)) {
    const ValueId other = c.combine.empty() ? no_value : b.predicate(b.operand(3));
    const std::uint8_t width = is_pair(c.type) ? 2 : register_width(result);
    halves.push_back(b.temp(width));
    const ValueId one = b.literal(width, held(result, is_pair(c.type)));
    b.emit(joined("selp", name_of(bits_of_width(width))), halves.back(),
           {one, b.literal(width, 0), combined(b, c, holds, other)});
  }
  join_halves(b, b.destination(b.operand(0), result), halves);
}

void selp(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  if (is_half(type)) b.unsupported();
  b.check_operands(4, 4);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId p = b.predicate(b.operand(3));
  b.emit(joined("selp", name_of(bits_of(type))), b.destination(b.operand(0), type), {x, y, p});
}

void slct(Builder& b) {
  Modifiers m(b.instruction());
  const bool ftz = m.take("ftz");
  const Type type = m.take_type(), by = only_type(b, m);
  const bool fits = by == Type::f32 || (by == Type::s32 && !ftz);
  if (!fits || is_half(type)) b.unsupported();
  b.check_operands(4, 4);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId sign = b.source(b.operand(3), by);
  const std::string_view how = by == Type::s32 ? "slct.s32" : ftz ? "slct.ftz.f32" : "slct.f32";
  b.emit(joined(how, name_of(bits_of(type))), b.destination(b.operand(0), type), {x, y, sign});
}

}  // namespace

const Family bit_family[] = {
    {"and", logic},    {"or", logic},    {"xor", logic},  {"not", invert},       {"cnot", invert},
    {"shl", shift},    {"shr", shift},   {"popc", count}, {"shf", funnel_shift}, {"clz", count},
    {"brev", invert},  {"bfind", bfind}, {"bfe", bfe},    {"bfi", bfi},          {"bmsk", masked},
    {"szext", masked}, {"prmt", prmt},   {"lop3", lop3},  {"", nullptr},
};

const Family compare_family[] = {
    {"setp", setp}, {"set", set}, {"selp", selp}, {"slct", slct}, {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
