// SPDX-License-Identifier: Apache-2.0
// A function body: its names, then its instructions one by one.
#include <unordered_map>
#include <vector>

#include "exec/lower/families.hpp"
#include "exec/lower/target.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

const std::unordered_map<std::string_view, Lowering>& lowerings() {
  static const auto all = [] {
    std::unordered_map<std::string_view, Lowering> map;
    for (const Family* family :
         {arithmetic_family, float_family, bit_family, compare_family, convert_family, move_family,
          memory_family, atomic_family, control_family, warp_family, video_family, call_family}) {
      for (; !family->opcode.empty(); ++family) map[family->opcode] = family->lower;
    }
    return map;
  }();
  return all;
}

constexpr std::string_view components = "xyzw", colours = "rgba";

std::uint32_t components_of(const Scope& scope, std::string_view name) {
  const ptx::Variable* declared = declaration_of(scope, name);
  return declared == nullptr ? 1 : declared->vector;
}

void declare_names(Scope& scope) {
  const ptx::Function& function = *scope.function;
  for (const ptx::Variable& variable : function.registers) {
    auto& names = variable.register_count == 0 ? scope.declared : scope.ranges;
    names.try_emplace(variable.name, &variable);
    scope.has_vectors = scope.has_vectors || variable.vector != 1;
  }
  for (const ptx::BranchTable& table : function.branch_tables) {
    scope.tables.try_emplace(table.name, &table);
  }
  for (const ptx::CallPrototype& prototype : function.prototypes) {
    scope.prototypes.try_emplace(prototype.name, &prototype);
  }
}

// A vector register as the list of its components, which are registers of their own: "v" becomes
// {v.x, v.y}, and "v.r" becomes "v.x".
void expand_vectors(const Scope& scope, Operand& operand) {
  for (Operand& element : operand.elements) expand_vectors(scope, element);
  if (operand.kind != Operand::Kind::reg) return;
  if (const std::uint32_t count = components_of(scope, operand.name); count != 1) {
    Operand component = operand;
    for (std::uint32_t i = 0; i < count; ++i) {
      component.name = operand.name + "." + components[i];
      operand.elements.push_back(component);
    }
    operand.kind = Operand::Kind::vector;
    return;
  }
  const std::size_t dot = operand.name.size() < 2 ? 0 : operand.name.size() - 2;
  const std::size_t colour = colours.find(operand.name.back());
  if (operand.name[dot] != '.' || colour == std::string_view::npos) return;
  const std::string_view vector = std::string_view(operand.name).substr(0, dot);
  if (components_of(scope, vector) != 1) operand.name.back() = components[colour];
}

// Returns the instruction with its vectors expanded, in `room` if there may be any. One at a time:
// a whole body takes several times its memory.
const Instruction& with_vectors_expanded(const Scope& scope, const Instruction& instruction,
                                         Instruction& room) {
  if (!scope.has_vectors) return instruction;
  room = instruction;
  for (Operand& operand : room.operands) expand_vectors(scope, operand);
  return room;
}

// .param variables of a body carry the parameters of calls: simple ones in a value, others in
// local memory.
void declare_variable(Builder& b, Scope& scope, const ptx::Variable& variable) {
  const std::uint64_t size = variable.size_bytes();
  b.declare_at(variable.line);
  switch (variable.space) {
    case Space::local:
      scope.symbols[variable.name] = b.add_local_symbol(size, variable.alignment);
      scope.symbols[variable.name].element = element_bytes(variable);
      return;
    case Space::shared:
      scope.symbols[variable.name] = {
          .kind = variable.is_extern ? Symbol::Kind::dynamic_shared : Symbol::Kind::shared,
          .offset = variable.is_extern ? 0 : b.add_shared(size, variable.alignment),
          .element = element_bytes(variable)};
      return;
    case Space::param:
      if (!variable.is_array && variable.vector == 1 && register_width(variable.type) >= 4) {
        scope.symbols[variable.name] = {Symbol::Kind::cell, 0,
                                        b.add_value(register_width(variable.type), false)};
      } else {
        scope.symbols[variable.name] = b.add_local_symbol(size, variable.alignment);
      }
      return;
    default:
      throw ptx::SyntaxError(
          variable.line, "the variable '" + variable.name + "' is not possible in a function body");
  }
}

// Counts how many instructions write a register. The first operand is the destination, except
// for stores and branches, where it is an address or a label; too high a count does no harm.
void count_definitions(Builder& b, const Operand& operand) {
  Scope& scope = b.scope();
  if (operand.kind == Operand::Kind::reg) {
    const bool is_part = !b.is_register(operand);  // "%r1.h0"
    ++scope.definitions[is_part ? operand.name.substr(0, operand.name.find('.')) : operand.name];
  }
  if (operand.kind == Operand::Kind::address) return;
  for (const Operand& element : operand.elements) count_definitions(b, element);
}

}  // namespace

void lower_instruction(Builder& b) {
  const auto found = lowerings().find(b.instruction().opcode);
  if (found == lowerings().end()) b.unsupported();
  check_target(b);
  found->second(b);
}

void lower_body(Builder& b) {
  Scope& scope = b.scope();
  const ptx::Function& function = *scope.function;
  constexpr std::uint64_t bytes_of_step = 1024;
  b.spend(1 + function.labels.size() + function.memory / bytes_of_step);
  declare_names(scope);
  for (const ptx::Variable& variable : function.variables) declare_variable(b, scope, variable);
  std::unordered_multimap<std::size_t, LabelId> labels_at;
  for (const ptx::Label& label : function.labels) {
    const LabelId id = b.add_label();
    scope.labels[label.name] = id;
    labels_at.emplace(label.instruction, id);
  }
  const std::vector<Instruction>& body = function.body;
  for (const Instruction& instruction : body) {
    if (instruction.operands.empty()) continue;
    if (!scope.has_vectors) {
      count_definitions(b, instruction.operands.front());
      continue;
    }
    Operand first = instruction.operands.front();
    expand_vectors(scope, first);
    count_definitions(b, first);
  }
  const auto place_labels = [&](std::size_t index) {
    const auto [first, last] = labels_at.equal_range(index);
    for (auto at = first; at != last; ++at) b.place_label(at->second);
  };
  for (std::size_t i = 0; i < body.size(); ++i) {
    place_labels(i);
    Instruction room;
    b.begin(with_vectors_expanded(scope, body[i], room));
    lower_instruction(b);
  }
  place_labels(body.size());
}

}  // namespace ctxbroker::software::exec::lower
