// SPDX-License-Identifier: Apache-2.0
// What the names of variables mean, and the addresses behind them.
#include "exec/lower/builder.hpp"

namespace ctxbroker::software::exec::lower {

std::uint32_t element_bytes(const ptx::Variable& variable) {
  return variable.is_array ? ptx::size_of(variable.type) : 0;
}

const Symbol& Builder::symbol(const std::string& name) {
  if (const auto found = scope_->symbols.find(name); found != scope_->symbols.end()) {
    return found->second;
  }
  if (const auto found = names_.globals.find(name); found != names_.globals.end()) {
    return found->second;
  }
  if (const auto found = names_.shared.find(name); found != names_.shared.end()) {
    const ptx::Variable& variable = *found->second;
    Symbol shared{.kind = Symbol::Kind::dynamic_shared};
    if (!variable.is_extern) {
      const auto [place, fresh] = placed_shared_.try_emplace(name, 0);
      if (fresh) place->second = add_shared(variable.size_bytes(), variable.alignment);
      shared = {.kind = Symbol::Kind::shared, .offset = place->second};
    }
    shared.element = element_bytes(variable);
    return scope_->symbols[name] = shared;
  }
  if (const auto found = names_.addresses.find(name); found != names_.addresses.end()) {
    return scope_->symbols[name] = {.kind = Symbol::Kind::function, .offset = found->second};
  }
  if (names_.functions.contains(name)) {
    fail("the address of the function " + quoted(name) +
         " is taken, which is not defined: the module has to be linked with the one that defines "
         "it (cuLinkAddData)");
  }
  fail("unknown name " + quoted(name));
}

ValueId Builder::symbol_value(const Operand& operand, std::uint8_t width) {
  const Symbol& found = symbol(operand.name);
  if (operand.is_indexed && found.element == 0) {
    fail(quoted(operand.name) + " is not an array, so it cannot be indexed");
  }
  auto addend = static_cast<std::uint64_t>(operand.offset);
  if (operand.is_indexed) addend *= found.element;
  const ValueId address = address_of(found, operand, width, addend);
  return operand.index.empty() ? address : add_index(address, operand.index, found.element);
}

// As ptxas does it, the index is scaled in the register's own width and taken as unsigned.
ValueId Builder::add_index(ValueId address, const std::string& index, std::uint32_t element) {
  const ValueId by = register_named(index);
  const std::uint8_t has = width(by), wanted = width(address);
  if (has != 4 && has != 8) fail("type mismatch: " + quoted(index) + " cannot be an index");
  ValueId scaled = temp(has);
  emit(has == 4 ? "mul.lo.b32" : "mul.lo.b64", scaled, {by, literal(has, element)});
  if (has != wanted) {
    const ValueId converted = temp(wanted);
    emit(wanted == 4 ? "offset.b32" : "extend.u32.b64", converted, {scaled});
    scaled = converted;
  }
  const ValueId sum = temp(wanted);
  emit(wanted == 4 ? "add.b32" : "add.b64", sum, {address, scaled});
  return sum;
}

ValueId Builder::address_of(const Symbol& found, const Operand& operand, std::uint8_t width,
                            std::uint64_t addend) {
  const bool has_short = found.kind != Symbol::Kind::global && found.kind != Symbol::Kind::function;
  if (width != 8 && !(width == 4 && has_short)) {
    fail("the address of " + quoted(operand.name) + " does not fit " + instruction_->full_name());
  }
  switch (found.kind) {
    case Symbol::Kind::global:
      return preset({.origin = Origin::global,
                     .width = 8,
                     .index = static_cast<std::uint32_t>(found.offset),
                     .bits = addend});
    case Symbol::Kind::dynamic_shared:
      return dynamic_shared(width, addend);
    case Symbol::Kind::frame: {
      const ValueId own = literal(8, found.offset + addend);
      ValueId address = temp(8);
      emit("add.b64", address, {frame(), own});
      if (width == 8) return address;
      const ValueId low = temp(4);
      emit("offset.b32", low, {address});
      return low;
    }
    case Symbol::Kind::function:
    case Symbol::Kind::shared:
    case Symbol::Kind::local:
    case Symbol::Kind::kernel_parameter:
      return literal(width, found.offset + addend);
    case Symbol::Kind::cell:
      break;
  }
  fail("the address of the parameter " + quoted(operand.name) +
       " is taken: not supported by the software device");
}

}  // namespace ctxbroker::software::exec::lower
