// Logic, shifts and bit fields; comparisons and selections.
#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

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
  b.expect_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), type), {x, y});
}

void invert(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), type), {x});
}

void shift(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), by = b.source(b.operand(2), Type::u32);
  const bool left = b.instruction().opcode == "shl";
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
  b.expect_operands(4, 4);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  const ValueId by = b.source(b.operand(3), Type::u32);
  b.emit(joined(joined("shf", side), joined(mode, "b32")), b.destination(b.operand(0), Type::b32),
         {x, y, by});
}

// popc, clz: a 32-bit count of a value of any width.
void count(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(b.instruction().opcode, name_of(type)), b.destination(b.operand(0), Type::u32),
         {x});
}

void bfind(Builder& b) {
  Modifiers m(b.instruction());
  const bool amount = m.take("shiftamt");
  const Type type = only_type(b, m);
  b.expect_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(joined(amount ? "bfind.shiftamt" : "bfind", name_of(type)),
         b.destination(b.operand(0), Type::u32), {x});
}

void bfe(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(4, 4);
  const ValueId x = b.source(b.operand(1), type);
  const ValueId at = b.source(b.operand(2), Type::u32), size = b.source(b.operand(3), Type::u32);
  b.emit(joined("bfe", name_of(type)), b.destination(b.operand(0), type), {x, at, size});
}

void bfi(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(5, 5);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId at = b.source(b.operand(3), Type::u32), size = b.source(b.operand(4), Type::u32);
  b.emit(joined("bfi", name_of(type)), b.destination(b.operand(0), type), {x, y, at, size});
}

// bmsk, szext: a mode, two 32-bit sources.
void masked(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view mode = m.take_any({"wrap", "clamp"});
  const Type type = only_type(b, m);
  b.expect_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), Type::u32);
  b.emit(joined(joined(b.instruction().opcode, mode), name_of(type)),
         b.destination(b.operand(0), type), {x, y});
}

void prmt(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view mode = m.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (only_type(b, m) != Type::b32) b.unsupported();
  b.expect_operands(4, 4);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
  const ValueId z = b.source(b.operand(3), Type::b32);
  b.emit(mode.empty() ? "prmt.b32" : joined("prmt.b32", mode),
         b.destination(b.operand(0), Type::b32), {x, y, z});
}

void lop3(Builder& b) {
  Modifiers m(b.instruction());
  if (only_type(b, m) != Type::b32) b.unsupported();
  b.expect_operands(5, 5);
  const ValueId x = b.source(b.operand(1), Type::b32), y = b.source(b.operand(2), Type::b32);
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
      return std::string("setp.").append(plain).append(".u").append(
          name_of(bits_of(type)).substr(1));
    }
  }
  return joined(joined("setp", comparison), name_of(type));
}

void setp(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view comparison = m.take_any(comparisons);
  const std::string_view combine = m.take_any({"and", "or", "xor"});
  const bool ftz = m.take("ftz");
  const Type type = only_type(b, m);
  b.expect_operands(combine.empty() ? 3 : 4, combine.empty() ? 3 : 4);
  const std::string op = comparison_op(b, comparison, ftz, type);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const Operand& to = b.operand(0);
  const bool pair = to.kind == Operand::Kind::reg_pair;
  const Operand& first = pair ? to.elements.at(0) : to;
  if (!pair && combine.empty()) {
    b.emit(op, b.destination(first, Type::pred), {x, y});
    return;
  }
  const ValueId holds = b.temp(1), differs = b.temp(1);
  b.emit(op, holds, {x, y});
  if (pair) b.emit("not.pred", differs, {holds});
  if (combine.empty()) {
    b.move(b.destination(first, Type::pred), holds);
    b.move(b.destination(to.elements.at(1), Type::pred), differs);
    return;
  }
  // The third operand is read before either result is written: it may be one of them.
  const ValueId other = b.temp(1);
  b.move(other, b.predicate(b.operand(3)));
  b.emit(joined(combine, "pred"), b.destination(first, Type::pred), {holds, other});
  if (pair) {
    b.emit(joined(combine, "pred"), b.destination(to.elements.at(1), Type::pred), {differs, other});
  }
}

// set: a comparison whose result is a number: all ones or 1.0 if it holds.
void set(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view comparison = m.take_any(comparisons);
  const std::string_view combine = m.take_any({"and", "or", "xor"});
  const bool ftz = m.take("ftz");
  const Type result = m.take_type();
  const Type type = only_type(b, m);
  if (result != Type::u32 && result != Type::s32 && result != Type::f32) b.unsupported();
  b.expect_operands(combine.empty() ? 3 : 4, combine.empty() ? 3 : 4);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  ValueId holds = b.temp(1);
  b.emit(comparison_op(b, comparison, ftz, type), holds, {x, y});
  if (!combine.empty()) {
    const ValueId combined = b.temp(1);
    b.emit(joined(combine, "pred"), combined, {holds, b.predicate(b.operand(3))});
    holds = combined;
  }
  const ValueId one = b.literal(4, result == Type::f32 ? 0x3f800000U : ~0U);
  b.emit("selp.b32", b.destination(b.operand(0), result), {one, b.literal(4, 0), holds});
}

void selp(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = only_type(b, m);
  b.expect_operands(4, 4);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  const ValueId p = b.predicate(b.operand(3));
  b.emit(joined("selp", name_of(bits_of(type))), b.destination(b.operand(0), type), {x, y, p});
}

void slct(Builder& b) {
  Modifiers m(b.instruction());
  const bool ftz = m.take("ftz");
  const Type type = m.take_type(), by = only_type(b, m);
  if (by != Type::s32 && by != Type::f32) b.unsupported();
  b.expect_operands(4, 4);
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
