// SPDX-License-Identifier: Apache-2.0
// Calls, expanded in place: the callee's parameters stand for the caller's .param variables.
#include <algorithm>

#include "exec/lower/families.hpp"
#include "exec/lower/outlined.hpp"
#include "ptx/link.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

const std::vector<Operand> no_operands;
constexpr unsigned deepest_expansion = 64;

Call parse(Builder& b) {
  Call call;
  call.results = call.arguments = &no_operands;
  for (const Operand& operand : b.instruction().operands) {
    if (operand.kind == Operand::Kind::list) {
      (call.function == nullptr ? call.results : call.arguments) = &operand.elements;
    } else if (call.function == nullptr) {
      call.function = &operand;
    } else {
      call.signature = &operand;
    }
  }
  return call;
}

// Registers are passed by value, .param variables by name.
void bind(Builder& b, Scope& callee, const ptx::Variable& formal, const Operand& actual,
          std::vector<std::pair<ValueId, ValueId>>& copies, bool is_result) {
  if (formal.space == Space::reg) {
    const ValueId value = b.add_value(register_width(formal.type), false);
    callee.registers[formal.name] = value;
    if (is_result) {
      copies.emplace_back(b.destination(actual, formal.type), value);
    } else {
      b.move(value, b.source(actual, formal.type));
    }
    return;
  }
  if (actual.kind == Operand::Kind::symbol) {
    callee.symbols[formal.name] = b.symbol(actual.name);
    return;
  }
  // A register or a constant where the callee has a .param: a cell takes it.
  const ValueId value = b.add_value(register_width(formal.type), false);
  callee.symbols[formal.name] = {Symbol::Kind::cell, 0, value};
  if (is_result) {
    copies.emplace_back(b.destination(actual, formal.type), value);
  } else {
    b.move(value, b.source(actual, formal.type));
  }
}

void expand(Builder& b, const ptx::Function& function, const Call& call) {
  if (call.arguments->size() != function.parameters.size() ||
      call.results->size() != function.results.size()) {
    b.fail("the call of '" + function.name + "' passes another number of parameters than it has");
  }
  Scope scope;
  scope.function = &function;
  scope.caller = &b.scope();
  scope.end = b.add_label();
  const LabelId after = scope.end;
  const Instruction& instruction = b.instruction();
  std::vector<std::pair<ValueId, ValueId>> copies;
  b.skip_unless_guard(after);
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    bind(b, scope, function.parameters[i], (*call.arguments)[i], copies, false);
  }
  for (std::size_t i = 0; i < function.results.size(); ++i) {
    bind(b, scope, function.results[i], (*call.results)[i], copies, true);
  }
  b.enter(scope);
  lower_body(b);
  b.place_label(after);
  b.leave();
  b.begin(instruction);
  for (const auto& [to, value] : copies) b.move(to, value);
}

// What is passed to a function that the device itself has.
ValueId argument(Builder& b, const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::symbol) {
    const Symbol& symbol = b.symbol(operand.name);
    if (symbol.kind == Symbol::Kind::cell) return symbol.value;
  }
  return b.source(operand, type);
}

// __assertfail(expression, file, line, function, size of a character)
void assert_failed(Builder& b, const Call& call) {
  const auto& arguments = *call.arguments;
  if (arguments.size() != 5) b.fail("__assertfail takes five parameters");
  const ValueId expression = argument(b, arguments[0], Type::u64);
  const ValueId file = argument(b, arguments[1], Type::u64);
  const ValueId line = argument(b, arguments[2], Type::u32);
  const ValueId function = argument(b, arguments[3], Type::u64);
  b.emit("assert", no_value, {expression, file, line, function});
}

// Where a function that the device itself has puts its result; some value where nobody wants it.
ValueId result(Builder& b, const std::vector<Operand>& results, Type type) {
  if (results.empty()) return b.temp(register_width(type));
  if (results.size() == 1 && results[0].kind == Operand::Kind::symbol) {
    const Symbol& symbol = b.symbol(results[0].name);
    if (symbol.kind == Symbol::Kind::cell) return symbol.value;
  }
  if (results.size() != 1) b.fail("a call has more results than its function");
  return b.destination(results[0], type);
}

// vprintf(format, arguments)
void print(Builder& b, const Call& call) {
  const auto& arguments = *call.arguments;
  if (arguments.size() != 2) b.fail("vprintf takes two parameters");
  const ValueId format = argument(b, arguments[0], Type::u64);
  const ValueId values = argument(b, arguments[1], Type::u64);
  b.emit("print", result(b, *call.results, Type::u32), {format, values});
}

// malloc(bytes)
void allocate(Builder& b, const Call& call) {
  if (call.arguments->size() != 1) b.fail("malloc takes one parameter");
  const ValueId bytes = argument(b, call.arguments->front(), Type::u64);
  b.emit("heap.allocate", result(b, *call.results, Type::u64), {bytes});
}

// free(address)
void release(Builder& b, const Call& call) {
  if (call.arguments->size() != 1 || !call.results->empty()) b.fail("free takes one parameter");
  b.emit("heap.free", no_value, {argument(b, call.arguments->front(), Type::u64)});
}

void call(Builder& b) {
  const Call call = parse(b);
  for (const std::string& modifier : b.instruction().modifiers) {
    if (modifier != "uni") b.unsupported();
  }
  if (call.function == nullptr) b.fail("call without a function");
  if (call.function->kind == Operand::Kind::reg) return call_through_pointer(b, call);
  const auto found = b.names().functions.find(call.function->name);
  if (found == b.names().functions.end()) {
    b.fail("call of the unknown function '" + call.function->name + "'");
  }
  const ptx::Function& function = *found->second;
  if (function.is_entry) b.fail("call of the kernel '" + function.name + "'");
  if (!function.is_declaration) {
    unsigned depth = 0;
    for (const Scope* at = &b.scope(); at != nullptr; at = at->caller) ++depth;
    const bool apart = b.names().cyclic.contains(&function) || depth > deepest_expansion;
    return apart ? call_outlined(b, function, call) : expand(b, function, call);
  }
  if (function.name == "__assertfail") return assert_failed(b, call);
  if (function.name == "vprintf") return print(b, call);
  if (function.name == "malloc") return allocate(b, call);
  if (function.name == "free") return release(b, call);
  const auto known = ptx::functions_of_the_driver();
  if (std::find(known.begin(), known.end(), function.name) == known.end()) {
    b.fail("Unresolved extern function '" + function.name +
           "': the module has to be linked with the one that defines it (cuLinkAddData)");
  }
  b.fail("call of the external function '" + function.name +
         "': not supported by the software device");
}

}  // namespace

const Family call_family[] = {{"call", call}, {"", nullptr}};

}  // namespace ctxbroker::software::exec::lower
