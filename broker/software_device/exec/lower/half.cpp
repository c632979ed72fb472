// SPDX-License-Identifier: Apache-2.0
#include "exec/lower/half.hpp"

#include <array>

namespace ctxbroker::software::exec::lower {
namespace {

ValueId flushed(Builder& b, ValueId half, bool ftz) {
  return ftz ? b.computed("flush.f16", 2, {half}) : half;
}

struct HalfShape {
  std::string_view opcode;
  std::size_t sources;
  bool rounds;       // takes rn; fma must have it
  bool saturates;    // takes sat, of f16
  bool approximate;  // must have approx
};
constexpr std::array<HalfShape, 10> half_shapes = {{
    {"add", 2, true, true, false},
    {"sub", 2, true, true, false},
    {"mul", 2, true, true, false},
    {"fma", 3, true, true, false},
    {"neg", 1, false, false, false},
    {"abs", 1, false, false, false},
    {"min", 2, false, false, false},
    {"max", 2, false, false, false},
    {"ex2", 1, false, false, true},
    {"tanh", 1, false, false, true},
}};

const HalfShape& half_shape_of(Builder& b) {
  for (const HalfShape& shape : half_shapes) {
    if (shape.opcode == b.instruction().opcode) return shape;
  }
  b.unsupported();
}

struct Calculation {
  std::string op;  // of f32 or f64
  Type wide;
  Type element;  // f16 or bf16
  bool ftz;      // of f16
  Limits limits;
  std::string_view rounding;
};

Calculation read(Builder& b, Modifiers& m, const HalfShape& shape, Type type) {
  const Type element = element_of(type);
  const bool any = shape.opcode == "fma" && element == Type::bf16;  // any rounding
  const std::string_view rounding = any            ? m.take_any({"rn", "rz", "rm", "rp"})
                                    : shape.rounds ? m.take_any({"rn"})
                                                   : std::string_view();
  const bool approximate = shape.approximate && m.take("approx");
  const bool ftz = m.take("ftz");
  const bool saturate = shape.saturates && element == Type::f16 && m.take("sat");
  const bool relu = shape.opcode == "fma" && m.take("relu");
  std::string op(shape.opcode);
  Type wide = Type::f32;  // which also has the functions, and min and max in all forms
  if (shape.opcode == "min" || shape.opcode == "max") {
    if (m.take("NaN")) op += ".NaN";
    if (m.take("xorsign")) op += m.take("abs") ? ".xorsign.abs" : "";
  } else if (shape.opcode == "fma") {
    op += ".odd";
  }
  if (shape.rounds) wide = Type::f64;
  const bool needs_rounding = shape.opcode == "fma" && rounding.empty();
  const bool is_ex2 = shape.opcode == "ex2";
  // Of bf16, ex2 must have it and nothing else may.
  const bool ftz_fits = element == Type::f16 ? !shape.approximate || !ftz : ftz == is_ex2;
  const bool fits = m.empty() && !needs_rounding && shape.approximate == approximate && ftz_fits &&
                    !(saturate && relu);
  if (!fits) b.unsupported();
  if (shape.approximate) op += is_ex2 && ftz ? ".approx.ftz" : ".approx";
  return {joined(op, name_of(wide)),
          wide,
          element,
          ftz && element == Type::f16,
          {saturate, relu},
          rounding.empty() ? "rn" : rounding};
}

ValueId calculated(Builder& b, const Calculation& c, const std::array<ValueId, 3>& halves,
                   std::size_t count) {
  std::array<ValueId, 3> s = {no_value, no_value, no_value};
  for (std::size_t i = 0; i < count; ++i) s[i] = widened(b, halves[i], c.element, c.wide, c.ftz);
  const std::uint8_t width = register_width(c.wide);
  ValueId result = b.temp(width);
  if (count == 1) {
    b.emit(c.op, result, {s[0]});
  } else if (count == 2) {
    b.emit(c.op, result, {s[0], s[1]});
  } else {
    b.emit(c.op, result, {s[0], s[1], s[2]});
  }
  if (c.wide == Type::f32) result = b.computed("cvt.f64.f32", 8, {result});
  return flushed(b, rounded(b, limited(b, result, c.limits), c.element, c.rounding), c.ftz);
}

}  // namespace

std::vector<ValueId> halves_of(Builder& b, ValueId value, Type type) {
  if (!is_pair(type)) return {value};
  const ValueId low = b.computed("unpack.low.b32", 2, {value});
  return {low, b.computed("unpack.high.b32", 2, {value})};
}

void join_halves(Builder& b, ValueId to, const std::vector<ValueId>& halves) {
  if (halves.size() == 1) return b.move(to, halves[0]);
  b.emit("pack.b32", to, {halves[0], halves[1]});
}

ValueId widened(Builder& b, ValueId half, Type type, Type to, bool ftz) {
  const Type element = element_of(type);
  return b.computed(joined(joined("cvt", name_of(to)), name_of(element)), register_width(to),
                    {flushed(b, half, ftz)});
}

ValueId rounded(Builder& b, ValueId wide, Type type, std::string_view rounding) {
  const std::string op = joined(joined("cvt", rounding), name_of(element_of(type)));
  return b.computed(joined(op, "f64"), 2, {wide});
}

ValueId limited(Builder& b, ValueId wide, Limits limits) {
  if (limits.saturate) return b.computed("sat.f64", 8, {wide});
  if (limits.relu) return b.computed("max.NaN.f64", 8, {wide, b.literal(8, 0)});
  return wide;
}

void lower_half_arithmetic(Builder& b, Modifiers& m, Type type) {
  const HalfShape& shape = half_shape_of(b);
  const Calculation calculation = read(b, m, shape, type);
  b.check_operands(shape.sources + 1, shape.sources + 1);
  std::array<std::vector<ValueId>, 3> sources;
  for (std::size_t i = 0; i < shape.sources; ++i) {
    sources[i] = halves_of(b, b.source(b.operand(i + 1), type), type);
  }
  std::vector<ValueId> results;
  for (std::size_t half = 0; half < sources[0].size(); ++half) {
    std::array<ValueId, 3> one = {no_value, no_value, no_value};
    for (std::size_t i = 0; i < shape.sources; ++i) one[i] = sources[i][half];
    results.push_back(calculated(b, calculation, one, shape.sources));
  }
  join_halves(b, b.destination(b.operand(0), type), results);
}

}  // namespace ctxbroker::software::exec::lower
