// SPDX-License-Identifier: Apache-2.0
// mov in all its forms, and conversions between the addresses of the state spaces.
#include "exec/lower/families.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

// mov.b64 %rd, {%r1, %r2}: the first element is the lowest.
void pack(Builder& b, Type type) {
  const auto& elements = b.operand(1).elements;
  const std::uint8_t width = register_width(type);
  if (elements.size() == 2 && width >= 4) {
    const Type half = bits_of_width(static_cast<std::uint8_t>(width / 2));
    const ValueId low = b.source(elements[0], half), high = b.source(elements[1], half);
    b.emit(width == 8 ? "pack.b64" : "pack.b32", b.destination(b.operand(0), type), {low, high});
    return;
  }
  if (elements.size() != 4 || width != 8) b.unsupported();
  ValueId halves[2];
  for (std::size_t i = 0; i < 2; ++i) {
    halves[i] = b.temp(4);
    const ValueId low = b.source(elements[2 * i], Type::b16);
    const ValueId high = b.source(elements[2 * i + 1], Type::b16);
    b.emit("pack.b32", halves[i], {low, high});
  }
  b.emit("pack.b64", b.destination(b.operand(0), type), {halves[0], halves[1]});
}

void unpack_one(Builder& b, const Operand& to, Type type, std::string_view op, ValueId from) {
  if (to.kind == Operand::Kind::sink) return;
  b.emit(op, b.destination(to, type), {from});
}

// mov.b64 {%r1, %r2}, %rd. The elements are of another width than the source: none overwrites it.
void unpack(Builder& b, Type type) {
  const auto& elements = b.operand(0).elements;
  const ValueId from = b.source(b.operand(1), type);
  const std::uint8_t width = register_width(type);
  if (elements.size() == 2 && width >= 4) {
    const Type half = bits_of_width(static_cast<std::uint8_t>(width / 2));
    unpack_one(b, elements[0], half, width == 8 ? "unpack.low.b64" : "unpack.low.b32", from);
    unpack_one(b, elements[1], half, width == 8 ? "unpack.high.b64" : "unpack.high.b32", from);
    return;
  }
  if (elements.size() != 4 || width != 8) b.unsupported();
  ValueId halves[2];
  for (std::size_t i = 0; i < 2; ++i) {
    halves[i] = b.temp(4);
    b.emit(i == 0 ? "unpack.low.b64" : "unpack.high.b64", halves[i], {from});
  }
  for (std::size_t i = 0; i < 4; ++i) {
    unpack_one(b, elements[i], Type::b16, i % 2 == 0 ? "unpack.low.b32" : "unpack.high.b32",
               halves[i / 2]);
  }
}

// mov.v2 {%r1, %r2}, {%r3, %r4}: all sources are read before a destination is written.
void move_vector(Builder& b, Type type, std::size_t count) {
  const Operand &to = b.operand(0), &from = b.operand(1);
  const bool fit = to.kind == Operand::Kind::vector && to.elements.size() == count &&
                   from.kind == Operand::Kind::vector && from.elements.size() == count;
  if (!fit) b.fail(b.instruction().full_name() + " needs two vectors of that size");
  std::vector<ValueId> values;
  for (const Operand& element : from.elements) {
    values.push_back(b.temp(register_width(type)));
    b.move(values.back(), b.source(element, type));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (to.elements[i].kind == Operand::Kind::sink) continue;
    b.move(b.destination(to.elements[i], type), values[i]);
  }
}

void mov(Builder& b) {
  Modifiers m(b.instruction());
  const std::size_t count = m.take("v2") ? 2 : m.take("v4") ? 4 : 1;
  const Type type = m.take_type();
  const bool fits = register_width(type) != 0 && (ptx::size_of(type) > 1 || type == Type::pred);
  if (!m.empty() || !fits || is_half(type)) b.unsupported();
  b.check_operands(2, 2);
  if (count > 1) return move_vector(b, type, count);
  if (b.operand(1).kind == Operand::Kind::vector) return pack(b, type);
  if (b.operand(0).kind == Operand::Kind::vector) return unpack(b, type);
  const ValueId value = b.source(b.operand(1), type);
  b.assign(b.operand(0), b.destination(b.operand(0), type), value);
}

// cvta: between a space's own addresses and generic ones. Global and constant memory have one kind
// of address only.
void cvta(Builder& b) {
  Modifiers m(b.instruction());
  const bool to_space = m.take("to");
  const std::string_view space =
      m.take_any({"global", "const", "shared", "shared::cta", "local", "param"});
  const Type type = m.take_type();
  if (!m.empty() || space.empty() || type != Type::u64) b.unsupported();
  b.check_operands(2, 2);
  const ValueId from = b.source(b.operand(1), type);
  const ValueId dst = b.destination(b.operand(0), type);
  if (space == "global" || space == "const") return b.assign(b.operand(0), dst, from);
  if (space == "local") {
    b.emit("local.base", dst, {from}, to_space ? -1 : 1);
    return;
  }
  const ValueId base =
      b.preset({.origin = space == "param" ? Origin::parameters_address : Origin::shared_address,
                .width = 8});
  b.emit(to_space ? "sub.b64" : "add.b64", dst, {from, base});
}

}  // namespace

const Family move_family[] = {{"mov", mov}, {"cvta", cvta}, {"", nullptr}};

}  // namespace ctxbroker::software::exec::lower
