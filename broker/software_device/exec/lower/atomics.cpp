// SPDX-License-Identifier: Apache-2.0
// atom and red.
#include "exec/lower/families.hpp"
#include "exec/lower/memory.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

constexpr std::string_view operations[] = {"add", "exch", "cas", "min", "max",
                                           "and", "or",   "xor", "inc", "dec"};

// The engines know bits as unsigned, and a sign only where it matters.
std::string_view engine_type(std::string_view operation, Type type) {
  const bool compares = operation == "min" || operation == "max";
  if (is_half(type)) return name_of(type);
  if (is_float(type) && operation != "exch" && operation != "cas") return name_of(type);
  if (is_signed(type) && compares) return name_of(type);
  switch (register_width(type)) {
    case 2:
      return "u16";
    case 4:
      return "u32";
    default:
      return "u64";
  }
}

bool has_type(std::string_view operation, Type type) {
  const bool is_word = is_integer(type) && register_width(type) >= 4;
  if (operation == "add") return is_half(type) || is_float(type) || (is_word && type != Type::s64);
  if (operation == "min" || operation == "max") return is_word;
  if (operation == "inc" || operation == "dec") return type == Type::u32;
  return is_bits(type) && (operation == "cas" || type != Type::b16);
}

void atomic(Builder& b) {
  Modifiers m(b.instruction());
  const bool returns = b.instruction().opcode == "atom";
  const std::size_t first = returns ? 1 : 0;
  const Space space = space_named(b, b.operand(first), take_space(m));
  m.ignore({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys"});
  std::string_view operation;
  for (const std::string_view candidate : operations) {
    if (operation.empty() && m.take(candidate)) operation = candidate;
  }
  const Type type = m.take_type();
  if (!has_type(operation, type) || (is_half(type) && !m.take("noftz"))) b.unsupported();
  const bool known = space == Space::none || space == Space::global || space == Space::shared;
  if (!m.empty() || operation.empty() || !known || register_width(type) == 0) b.unsupported();
  const std::size_t count = operation == "cas" ? 2 : 1;
  b.check_operands(first + 1 + count, first + 1 + count);
  const Address address = address_of(b, b.operand(first), space);
  const ValueId x = b.source(b.operand(first + 1), type);
  const ValueId y = count == 2 ? b.source(b.operand(first + 2), type) : no_value;
  ValueId dst = no_value;
  if (returns && b.operand(0).kind != Operand::Kind::sink) dst = b.destination(b.operand(0), type);
  const std::string op = std::string("atom.")
                             .append(where_of(space))
                             .append(".")
                             .append(operation)
                             .append(".")
                             .append(engine_type(operation, type));
  if (count == 2) {
    b.emit(op, dst, {address.base, x, y}, address.offset);
  } else {
    b.emit(op, dst, {address.base, x}, address.offset);
  }
}

}  // namespace

const Family atomic_family[] = {{"atom", atomic}, {"red", atomic}, {"", nullptr}};

}  // namespace ctxbroker::software::exec::lower
