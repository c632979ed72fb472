// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic and the approximate functions.
#include <array>

#include "exec/lower/families.hpp"
#include "exec/lower/half.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

// The rounding bits of the control register of x86; the engines take them as they are.
std::int64_t rounding_mode(std::string_view modifier) {
  if (modifier == "rm") return 0x2000;
  if (modifier == "rp") return 0x4000;
  if (modifier == "rz") return 0x6000;
  return 0;
}

void set_rounding(Builder& b, std::int64_t mode) {
  Step& step = b.emit("set_rounding", no_value, {}, mode);
  step.guard = no_value;
  step.guard_negated = false;
}

// An operation: what PTX calls it, how many sources it has, and what it may be modified with.
struct Shape {
  std::string_view opcode;
  std::size_t sources;
  bool rounds;  // takes rn, rz, rm, rp
  bool saturates;
  bool approximate;  // takes approx (div also full)
};
constexpr std::array<Shape, 18> shapes = {{
    {"add", 2, true, true, false},
    {"sub", 2, true, true, false},
    {"mul", 2, true, true, false},
    {"mad", 3, true, true, false},
    {"fma", 3, true, true, false},
    {"div", 2, true, false, true},
    {"min", 2, false, false, false},
    {"max", 2, false, false, false},
    {"abs", 1, false, false, false},
    {"neg", 1, false, false, false},
    {"sqrt", 1, true, false, true},
    {"rcp", 1, true, false, true},
    {"rsqrt", 1, false, false, true},
    {"ex2", 1, false, false, true},
    {"lg2", 1, false, false, true},
    {"sin", 1, false, false, true},
    {"cos", 1, false, false, true},
    {"tanh", 1, false, false, true},
}};

const Shape* shape_of(std::string_view opcode) {
  for (const Shape& shape : shapes) {
    if (shape.opcode == opcode) return &shape;
  }
  return nullptr;
}

bool has_approximate_op(std::string_view opcode) {
  return opcode == "ex2" || opcode == "lg2" || opcode == "sin" || opcode == "cos" ||
         opcode == "tanh";
}

// The operation's name in the engines' tables.
std::string op_name(std::string_view opcode, Type type, bool ftz, bool approx, bool nearest,
                    std::string_view variant) {
  std::string name(opcode == "mad" ? "fma" : opcode);
  if (name == "fma" && !nearest) name += ".exact";
  const bool half_only = approx && ftz && type == Type::f64;  // rcp.approx.ftz.f64
  if (half_only || has_approximate_op(opcode)) name += ".approx";
  if (!variant.empty()) name.append(".").append(variant);
  if (ftz) name += ".ftz";
  return name.append(".").append(name_of(type));
}

}  // namespace

Rounding::Rounding(Builder& builder, std::string_view modifier)
    : builder_(builder), active_(rounding_mode(modifier) != 0) {
  if (active_) set_rounding(builder_, rounding_mode(modifier));
}

// Emitting may refuse an instruction, as anywhere else.
Rounding::~Rounding() noexcept(false) {
  if (active_) set_rounding(builder_, 0);
}

void lower_float_arithmetic(Builder& b, Modifiers& m, Type type) {
  if (is_half(type)) return lower_half_arithmetic(b, m, type);
  const Shape* shape = shape_of(b.instruction().opcode);
  if (shape == nullptr || !is_float(type)) b.unsupported();
  const std::string_view rounding =
      shape->rounds ? m.take_any({"rn", "rz", "rm", "rp"}) : std::string_view();
  const bool approx = shape->approximate && !m.take_any({"approx", "full"}).empty();
  const bool ftz = m.take("ftz");
  const bool saturate = shape->saturates && m.take("sat");
  std::string_view variant;
  if (shape->opcode == "min" || shape->opcode == "max") {
    const bool nan = m.take("NaN"), by_both = m.take("xorsign");
    if (by_both && !m.take("abs")) b.unsupported();
    variant = by_both ? (nan ? "NaN.xorsign.abs" : "xorsign.abs") : nan ? "NaN" : "";
  }
  const bool is_double = type == Type::f64;
  if (!m.empty() || (is_double && (saturate || !variant.empty() || (ftz && !approx)))) {
    b.unsupported();
  }
  // What may be approximate is that or rounds, and fma always says how.
  const bool says_how = shape->approximate || shape->opcode == "fma" || shape->opcode == "mad";
  if (says_how && approx == !rounding.empty()) b.unsupported();
  const bool of_doubles = shape->opcode == "rsqrt" || (shape->opcode == "rcp" && ftz);
  if (is_double && approx && !of_doubles) b.unsupported();

  b.check_operands(shape->sources + 1, shape->sources + 1);
  std::array<ValueId, 3> s = {no_value, no_value, no_value};
  for (std::size_t i = 0; i < shape->sources; ++i) s[i] = b.source(b.operand(i + 1), type);
  const ValueId dst = b.destination(b.operand(0), type);
  {
    const Rounding mode(b, rounding);
    const std::string op = op_name(shape->opcode, type, ftz, approx, mode.is_nearest(), variant);
    if (shape->sources == 1) {
      b.emit(op, dst, {s[0]});
    } else if (shape->sources == 2) {
      b.emit(op, dst, {s[0], s[1]});
    } else {
      b.emit(op, dst, {s[0], s[1], s[2]});
    }
  }
  if (saturate) b.emit(std::string("sat.").append(name_of(type)), dst, {dst});
}

namespace {

void float_only(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  lower_float_arithmetic(b, m, type);
}

void copysign(Builder& b) {
  Modifiers m(b.instruction());
  const Type type = m.take_type();
  if (!m.empty() || !is_float(type)) b.unsupported();
  b.check_operands(3, 3);
  const ValueId x = b.source(b.operand(1), type), y = b.source(b.operand(2), type);
  b.emit(std::string("copysign.").append(name_of(type)), b.destination(b.operand(0), type), {x, y});
}

void testp(Builder& b) {
  Modifiers m(b.instruction());
  const std::string_view what =
      m.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const Type type = m.take_type();
  if (!m.empty() || what.empty()) b.unsupported();
  b.check_operands(2, 2);
  const ValueId x = b.source(b.operand(1), type);
  b.emit(std::string("testp.").append(what).append(".").append(name_of(type)),
         b.destination(b.operand(0), Type::pred), {x});
}

}  // namespace

const Family float_family[] = {
    {"fma", float_only},  {"sqrt", float_only},   {"rcp", float_only}, {"rsqrt", float_only},
    {"ex2", float_only},  {"lg2", float_only},    {"sin", float_only}, {"cos", float_only},
    {"tanh", float_only}, {"copysign", copysign}, {"testp", testp},    {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
