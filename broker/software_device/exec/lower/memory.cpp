// SPDX-License-Identifier: Apache-2.0
// Loads and stores.
#include <vector>

#include "exec/lower/families.hpp"
#include "exec/lower/memory.hpp"

namespace ctxbroker::software::exec::lower {

Space take_space(Modifiers& m) {
  if (m.take("global")) return Space::global;
  if (m.take("const")) return Space::constant;
  if (m.take("shared") || m.take("shared::cta")) return Space::shared;
  if (m.take("local")) return Space::local;
  if (m.take("param") || m.take("param::entry") || m.take("param::func")) return Space::param;
  return Space::none;
}

std::string_view where_of(Space space) {
  switch (space) {
    case Space::shared:
      return "shared";
    case Space::local:
      return "local";
    case Space::param:
      return "param";
    default:
      return "global";
  }
}

Space space_named(Builder& b, const Operand& address, Space space) {
  const bool named = address.kind == Operand::Kind::address && !address.name.empty() &&
                     !b.has_register(address.name);
  if (space != Space::none || !named) return space;
  switch (b.symbol(address.name).kind) {
    case Symbol::Kind::shared:
    case Symbol::Kind::dynamic_shared:
      return Space::shared;
    case Symbol::Kind::local:
    case Symbol::Kind::frame:
      return Space::local;
    default:
      return space;
  }
}

// The base of an address, as wide as the space's addresses; the offset goes to the step.
Address address_of(Builder& b, const Operand& operand, Space space) {
  if (operand.kind != Operand::Kind::address || !operand.elements.empty()) {
    b.fail(b.instruction().full_name() + " needs an address in brackets");
  }
  const std::uint8_t wanted = space == Space::shared ? 4 : 8;
  if (operand.name.empty()) {
    return {b.literal(wanted, static_cast<std::uint64_t>(operand.offset)), 0};
  }
  if (!b.has_register(operand.name)) {
    Operand symbol = operand;
    symbol.kind = Operand::Kind::symbol;
    if (symbol.is_indexed) return {b.symbol_value(symbol, wanted), 0};
    const Symbol& found = b.symbol(operand.name);
    if (found.kind == Symbol::Kind::frame && wanted == 8) {
      const std::uint64_t offset = found.offset + static_cast<std::uint64_t>(operand.offset);
      return {b.frame(), static_cast<std::int64_t>(offset)};
    }
    symbol.offset = 0;
    return {b.symbol_value(symbol, wanted), operand.offset};
  }
  const ValueId base = b.register_named(operand.name);
  const std::uint8_t has = b.width(base);
  if (has != 4 && has != 8) b.fail("type mismatch: '" + operand.name + "' cannot hold an address");
  if (has == wanted) return {base, operand.offset};
  const bool generic = wanted == 8 && space != Space::local && space != Space::param;
  if (generic) b.fail("type mismatch: '" + operand.name + "' is 32 bits, an address has 64");
  const ValueId sum = b.temp(has), converted = b.temp(wanted);
  const auto offset = static_cast<std::uint64_t>(operand.offset);
  b.emit(has == 8 ? "add.b64" : "add.b32", sum, {base, b.literal(has, offset)});
  b.emit(wanted == 4 ? "offset.b32" : "extend.u32.b64", converted, {sum});
  return {converted, 0};
}

namespace {

const std::initializer_list<std::string_view> hints = {
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "cta", "cluster", "gpu", "sys", "unified"};

struct Access {
  Space space = Space::none;
  Type type = Type::none;
  std::uint32_t count = 1;
  bool fence_before = false, fence_after = false;
};

// What the modifiers say. Ordered and volatile accesses are plain ones with fences around them.
Access access_of(Builder& b, bool is_load) {
  Modifiers m(b.instruction());
  Access access;
  access.space = take_space(m);
  const bool ordered = m.take("volatile") || m.take("relaxed") || m.take("mmio");
  const bool synchronises = m.take(is_load ? "acquire" : "release");
  if (is_load && m.take("nc") && access.space != Space::global) b.unsupported();
  // Nobody else sees a thread's own memory.
  const bool is_seen =
      access.space == Space::global || access.space == Space::shared || access.space == Space::none;
  if ((ordered || synchronises) && !is_seen) b.unsupported();
  m.ignore(hints);
  access.count = m.take("v2") ? 2 : m.take("v4") ? 4 : 1;
  access.type = m.take_type();
  const bool fits = register_width(access.type) != 0 && access.type != Type::pred;
  if (!m.empty() || !fits || is_half(access.type)) b.unsupported();
  access.fence_before = synchronises && !is_load;
  access.fence_after = (synchronises && is_load) || ordered;
  return access;
}

// The type as it lies in memory, extended to the narrowest register: u8, s8, u16, u32, u64.
std::string_view memory_type(Type type) {
  if (type == Type::s8) return "s8";
  switch (ptx::size_of(type)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    default:
      return "u64";
  }
}

std::string access_op(std::string_view kind, Space space, const Access& access) {
  return std::string(kind)
      .append(".")
      .append(where_of(space))
      .append(".")
      .append(memory_type(access.type))
      .append(".v")
      .append(std::to_string(access.count));
}

std::vector<Operand> elements_of(Builder& b, const Operand& operand, std::uint32_t count) {
  std::vector<Operand> elements;
  if (operand.kind == Operand::Kind::vector) {
    elements = operand.elements;
  } else {
    elements.push_back(operand);
  }
  if (elements.size() != count) {
    b.fail(b.instruction().full_name() + " has " + std::to_string(elements.size()) +
           " elements where " + std::to_string(count) + " are needed");
  }
  return elements;
}

// A loaded value, in the narrowest register, to where it belongs.
void deliver(Builder& b, ValueId dst, ValueId value, Type type) {
  const std::uint8_t from = b.width(value), to = b.width(dst);
  if (from == to) return b.move(dst, value);
  const std::string kind = std::string(is_signed(type) ? "s" : "u") + std::to_string(from * 8);
  b.emit("extend." + kind + (to == 4 ? ".b32" : ".b64"), dst, {value});
}

// Destinations must be at least as wide as the type.
ValueId load_destination(Builder& b, const Operand& operand, Type type) {
  const ValueId dst = b.any_destination(operand);
  if (dst != no_value && b.width(dst) < register_width(type)) b.destination(operand, type);
  return dst;
}

// A kernel parameter at a fixed offset: the launch puts it into the frame, no step is needed.
void load_parameter(Builder& b, const Access& access, std::uint64_t offset) {
  const std::vector<Operand> to = elements_of(b, b.operand(0), access.count);
  const auto size = static_cast<std::uint8_t>(ptx::size_of(access.type));
  std::uint64_t total = 0;
  for (const ptx::Variable& parameter : b.scope().function->parameters) {
    const std::uint64_t align = parameter.alignment;
    total = (total + align - 1) / align * align + parameter.size_bytes();
  }
  // An offset before the parameters has wrapped round, so a sum of it would do so again.
  const std::uint64_t wanted = std::uint64_t{size} * access.count;
  if (offset % size != 0 || wanted > total || offset > total - wanted) {
    b.fail(b.instruction().full_name() + " reads outside of the kernel's parameters");
  }
  for (std::uint32_t i = 0; i < access.count; ++i) {
    const ValueId dst = load_destination(b, to[i], access.type);
    if (dst == no_value) continue;
    b.assign(to[i], dst,
             b.preset({.origin = Origin::parameter,
                       .width = b.width(dst),
                       .sign_extend = is_signed(access.type),
                       .memory_width = size,
                       .bits = offset + std::uint64_t{i} * size}));
  }
}

// A parameter of an expanded call that is held in a value.
void load_cell(Builder& b, const Access& access, const Symbol& cell, std::int64_t offset) {
  const Operand& to = b.operand(0);
  if (access.count != 1 || offset != 0) b.unsupported();
  const ValueId dst = load_destination(b, to, access.type);
  if (dst == no_value) return;
  if (b.width(cell.value) == register_width(access.type)) {
    return deliver(b, dst, cell.value, access.type);
  }
  if (b.width(cell.value) < register_width(access.type)) b.unsupported();
  const std::uint8_t natural = register_width(access.type);
  const ValueId narrow = b.temp(natural);
  b.emit(std::string("truncate.")
             .append(name_of(bits_of_width(b.width(cell.value))))
             .append(".")
             .append(name_of(bits_of_width(natural))),
         narrow, {cell.value});
  deliver(b, dst, narrow, access.type);
}

void store_cell(Builder& b, const Access& access, const Symbol& cell, std::int64_t offset) {
  if (access.count != 1 || offset != 0) b.unsupported();
  const ValueId value = b.any_source(b.operand(1), access.type);
  const std::uint8_t has = b.width(value), wanted = b.width(cell.value);
  if (has == wanted) return b.move(cell.value, value);
  const std::string widths =
      std::string(name_of(bits_of_width(has))).append(".").append(name_of(bits_of_width(wanted)));
  if (has > wanted) {
    b.emit("truncate." + widths, cell.value, {value});
  } else {
    b.emit("extend.u" + std::to_string(has * 8) + (wanted == 4 ? ".b32" : ".b64"), cell.value,
           {value});
  }
}

// "name[3]" stands for the address of that element.
Operand as_address(Builder& b, Operand operand) {
  if (operand.kind != Operand::Kind::symbol || !operand.is_indexed) return operand;
  operand.kind = Operand::Kind::address;
  const std::uint32_t element = b.symbol(operand.name).element;
  if (operand.index.empty() && element != 0) {
    operand.offset =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(operand.offset) * element);
    operand.is_indexed = false;
  }
  return operand;
}

// Where .param accesses go: kernel parameters, or parameters of calls, which lie in local memory.
Space parameter_space(Builder& b, const Operand& address) {
  if (!address.name.empty() && b.has_register(address.name)) {
    return b.scope().caller == nullptr && b.in_kernel() ? Space::param : Space::local;
  }
  const Symbol::Kind kind = b.symbol(address.name).kind;
  const bool in_memory = kind == Symbol::Kind::local || kind == Symbol::Kind::frame;
  return in_memory ? Space::local : Space::param;
}

void ld(Builder& b) {
  const Access access = access_of(b, true);
  b.check_operands(2, 2);
  const Operand from = as_address(b, b.operand(1));
  Space space = space_named(b, from, access.space);
  if (space == Space::param) {
    if (from.kind != Operand::Kind::address || from.is_indexed) b.unsupported();
    space = parameter_space(b, from);
    if (!b.has_register(from.name) && space == Space::param) {
      const Symbol& symbol = b.symbol(from.name);
      if (symbol.kind == Symbol::Kind::cell) return load_cell(b, access, symbol, from.offset);
      return load_parameter(b, access, symbol.offset + static_cast<std::uint64_t>(from.offset));
    }
  }
  const Address address = address_of(b, from, space);
  const std::vector<Operand> to = elements_of(b, b.operand(0), access.count);
  const std::uint8_t natural = register_width(access.type);
  std::vector<ValueId> loaded, wanted;
  for (const Operand& element : to) {
    const ValueId dst = load_destination(b, element, access.type);
    wanted.push_back(dst);
    loaded.push_back(dst != no_value && b.width(dst) == natural ? dst : b.temp(natural));
  }
  const std::string op = access_op("ld", space, access);
  if (access.count == 1) {
    b.emit(op, loaded[0], {address.base}, address.offset);
  } else {
    b.emit_extra(op, no_value, {address.base}, loaded, true).immediate = address.offset;
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    if (wanted[i] != no_value && wanted[i] != loaded[i]) {
      deliver(b, wanted[i], loaded[i], access.type);
    }
  }
  if (access.fence_after) b.emit("fence", no_value, {});
}

void st(Builder& b) {
  const Access access = access_of(b, false);
  b.check_operands(2, 2);
  const Operand target = as_address(b, b.operand(0));
  Space space = space_named(b, target, access.space);
  if (space == Space::constant) b.unsupported();
  if (space == Space::param) {
    if (target.kind != Operand::Kind::address || target.is_indexed) b.unsupported();
    space = parameter_space(b, target);
    if (space == Space::param) {
      const Symbol& symbol = b.symbol(target.name);
      if (symbol.kind != Symbol::Kind::cell) b.fail("a kernel cannot write its own parameters");
      return store_cell(b, access, symbol, target.offset);
    }
  }
  if (access.fence_before) b.emit("fence", no_value, {});
  const Address address = address_of(b, target, space);
  const std::uint8_t natural = register_width(access.type);
  std::vector<ValueId> values;
  for (const Operand& element : elements_of(b, b.operand(1), access.count)) {
    ValueId value = b.any_source(element, access.type);
    const std::uint8_t has = b.width(value);
    if (has < natural || has == 1) b.source(element, access.type);  // says what is wrong
    if (has > natural) {
      const ValueId cut = b.temp(natural);
      b.emit(std::string("truncate.")
                 .append(name_of(bits_of_width(has)))
                 .append(".")
                 .append(name_of(bits_of_width(natural))),
             cut, {value});
      value = cut;
    }
    values.push_back(value);
  }
  Access plain = access;
  if (plain.type == Type::s8) plain.type = Type::u8;
  const std::string op = access_op("st", space, plain);
  if (access.count == 1) {
    b.emit(op, no_value, {address.base, values[0]}, address.offset);
  } else {
    b.emit_extra(op, no_value, {address.base}, values, false).immediate = address.offset;
  }
  if (access.fence_after) b.emit("fence", no_value, {});
}

// Hints only.
void nothing(Builder&) {}

}  // namespace

const Family memory_family[] = {
    {"ld", ld},    {"ldu", ld}, {"st", st}, {"prefetch", nothing}, {"prefetchu", nothing},
    {"", nullptr},
};

}  // namespace ctxbroker::software::exec::lower
