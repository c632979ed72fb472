// SPDX-License-Identifier: Apache-2.0
// Which functions of a module have addresses, and which may call themselves.
#include <atomic>

#include "exec/lower/outlined.hpp"

namespace ctxbroker::software::exec::lower {
namespace {

// Beyond all memory, so that data behind such an address faults; each module has a range of its
// own, so that one module's pointer is no function of another.
constexpr std::uint64_t function_addresses = 1ULL << 62;
constexpr std::uint64_t addresses_per_module = 1ULL << 28;
constexpr std::uint64_t address_step = 16;

// Calls f(name, whether it is what the instruction calls) for names that are no local ones.
template <class F>
void each_name(const Instruction& instruction, const std::vector<Operand>& operands, F f) {
  bool may_be_callee = instruction.opcode == "call" && &operands == &instruction.operands;
  for (const Operand& operand : operands) {
    const bool is_symbol =
        operand.kind == Operand::Kind::symbol || operand.kind == Operand::Kind::label;
    if (is_symbol) f(operand.name, may_be_callee);
    if (operand.kind != Operand::Kind::list) may_be_callee = false;
    each_name(instruction, operand.elements, f);
  }
}

// Takes away what has no partner left, again and again: what stays lies between cycles.
void peel(std::unordered_map<const ptx::Function*, std::vector<const ptx::Function*>> partners,
          std::unordered_set<const ptx::Function*>& left) {
  std::unordered_map<const ptx::Function*, std::size_t> waits;
  std::unordered_map<const ptx::Function*, std::vector<const ptx::Function*>> back;
  std::vector<const ptx::Function*> ready;
  for (const ptx::Function* function : left) {
    for (const ptx::Function* partner : partners[function]) {
      if (!left.contains(partner)) continue;
      ++waits[function];
      back[partner].push_back(function);
    }
    if (waits[function] == 0) ready.push_back(function);
  }
  while (!ready.empty()) {
    const ptx::Function* function = ready.back();
    ready.pop_back();
    left.erase(function);
    for (const ptx::Function* waiting : back[function]) {
      if (--waits[waiting] == 0) ready.push_back(waiting);
    }
  }
}

}  // namespace

void find_calls(const ptx::Module& module, ModuleNames& names) {
  static std::atomic<std::uint64_t> modules = 0;
  names.first_address =
      function_addresses + modules.fetch_add(1, std::memory_order_relaxed) * addresses_per_module;
  std::unordered_set<std::string> taken;
  for (const ptx::Variable& variable : module.variables) {
    for (const Operand& value : variable.initial) {
      if (value.kind == Operand::Kind::symbol) taken.insert(value.name);
    }
  }
  std::unordered_map<const ptx::Function*, std::vector<const ptx::Function*>> callees, callers;
  for (const ptx::Function& function : module.functions) {
    for (const Instruction& instruction : function.body) {
      each_name(instruction, instruction.operands, [&](const std::string& name, bool is_callee) {
        const auto found = names.functions.find(name);
        if (found == names.functions.end()) return;
        if (!is_callee) {
          taken.insert(name);
          return;
        }
        callees[&function].push_back(found->second);
        callers[found->second].push_back(&function);
      });
    }
    if (!function.is_declaration && !function.is_entry) names.cyclic.insert(&function);
  }
  peel(callees, names.cyclic);
  peel(callers, names.cyclic);
  for (const ptx::Function& function : module.functions) {
    if (!taken.contains(function.name) || function.is_declaration) continue;
    names.addresses[function.name] = names.first_address + address_step * names.by_address.size();
    names.by_address.push_back(function.is_entry ? nullptr : &function);
  }
}

}  // namespace ctxbroker::software::exec::lower
