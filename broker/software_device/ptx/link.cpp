// SPDX-License-Identifier: Apache-2.0
#include "ptx/link.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "limits/limits.hpp"
#include "ptx/token_stream.hpp"

namespace ctxbroker::software::ptx {

namespace {

constexpr std::string_view drivers_own[] = {"vprintf", "malloc", "free", "__assertfail",
                                            "cudaGraphSetConditional"};

bool is_definition(const Variable& variable) noexcept {
  return !variable.is_extern;
}
bool is_definition(const Function& function) noexcept {
  return !function.is_declaration;
}

// What inputs share under one name: a function or a variable, and who said so first.
struct Symbol {
  const Function* function = nullptr;
  const Variable* variable = nullptr;
  std::size_t first = 0;    // input that names it first
  std::size_t definer = 0;  // input whose definition is taken; `defined` says there is one
  bool defined = false;
  bool is_weak = false;
};

using Symbols = std::unordered_map<std::string, Symbol>;

std::string in_quotes(std::string_view text) {
  return quoted(text);
}

// The linker's messages, up to a limit.
class Errors {
 public:
  void add(const std::string& line) {
    if (left_.take(1)) {
      text_ += "error   : " + line + "\n";
    } else if (!std::exchange(is_full_, true)) {
      text_ += "fatal   : " + limits::beyond(left_.limit()) + "\n";
    }
  }
  const std::string& text() const noexcept { return text_; }

 private:
  limits::Allowance left_{limits::link_errors};
  std::string text_;
  bool is_full_ = false;
};

bool same_shape(const std::vector<Variable>& a, const std::vector<Variable>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.size_bytes() == other.size_bytes();
  });
}

// Gathers what the inputs say of the names that they share.
class Table {
 public:
  explicit Table(std::span<const LinkInput> inputs) : inputs_(inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (const Function& function : inputs[i].module.functions) add(function, i);
      for (const Variable& variable : inputs[i].module.variables) add(variable, i);
    }
  }

  const Symbols& symbols() const noexcept { return symbols_; }
  const Errors& errors() const noexcept { return errors_; }

 private:
  // A function that is only declared may be another's, whether or not it says ".extern".
  void add(const Function& function, std::size_t input) {
    if (function.linkage == Linkage::local && !function.is_declaration) return;
    const auto [place, fresh] = symbols_.try_emplace(function.name);
    Symbol& symbol = place->second;
    if (fresh) {
      symbol.first = input;
      symbol.function = &function;
    } else if (symbol.function == nullptr) {
      return report_kinds(function.name, input, symbol);
    } else if (!same_shape(symbol.function->parameters, function.parameters) ||
               !same_shape(symbol.function->results, function.results)) {
      report("Prototype doesn't match for", function.name, input, "first defined", symbol.first);
    }
    define(symbol, function, input);
  }

  // Shared memory is every kernel's own; only what has a size of its own is one module's.
  void add(const Variable& variable, std::size_t input) {
    if (variable.linkage == Linkage::local || variable.space == Space::shared) return;
    const auto [place, fresh] = symbols_.try_emplace(variable.name);
    Symbol& symbol = place->second;
    if (fresh) {
      symbol.first = input;
      symbol.variable = &variable;
    } else if (symbol.variable == nullptr) {
      return report_kinds(variable.name, input, symbol);
    } else {
      compare(*symbol.variable, variable, input, symbol);
    }
    define(symbol, variable, input);
  }

  void compare(const Variable& first, const Variable& variable, std::size_t input,
               const Symbol& symbol) {
    if (first.space != variable.space) report_kinds(variable.name, input, symbol);
    const bool any_open = first.count == 0 || variable.count == 0;  // extern name[];
    const bool any_common = first.linkage == Linkage::common || variable.linkage == Linkage::common;
    if (!any_open && !any_common && first.size_bytes() != variable.size_bytes()) {
      report("Size doesn't match for", variable.name, input, "first specified", symbol.first);
    }
  }

  template <typename Thing>
  void define(Symbol& symbol, const Thing& thing, std::size_t input) {
    if (!is_definition(thing)) return;
    const bool weak = thing.linkage != Linkage::visible;
    if (symbol.defined && !weak && !symbol.is_weak) {
      return report("Multiple definition of", thing.name, input, "first defined", symbol.definer);
    }
    if (symbol.defined && (weak || !symbol.is_weak)) return;
    symbol.defined = true;
    symbol.definer = input;
    symbol.is_weak = weak;
  }

  void report_kinds(std::string_view name, std::size_t input, const Symbol& symbol) {
    report("Memory space doesn't match for", name, input, "first specified", symbol.first);
  }

  void report(std::string_view what, std::string_view name, std::size_t input,
              std::string_view then, std::size_t earlier) {
    errors_.add(std::string(what) + " " + in_quotes(name) + " in " +
                in_quotes(inputs_[input].name) + ", " + std::string(then) + " in " +
                in_quotes(inputs_[earlier].name));
  }

  std::span<const LinkInput> inputs_;
  Symbols symbols_;
  Errors errors_;
};

// A module's own names that are taken already, and what they become.
using NewNames = std::unordered_map<std::string, std::string>;

void rename(std::string& name, const NewNames& names) {
  if (const auto found = names.find(name); found != names.end()) name = found->second;
}

// Names inside of a function hide those of the module.
std::unordered_set<std::string_view> names_within(const Function& function) {
  std::unordered_set<std::string_view> names;
  for (const auto* variables :
       {&function.results, &function.parameters, &function.registers, &function.variables}) {
    for (const Variable& variable : *variables) names.insert(variable.name);
  }
  for (const Label& label : function.labels) names.insert(label.name);
  return names;
}

// Calls `visit` with every name in the operand that may be the module's.
template <typename Visit>
void visit_names(Operand& operand, const Visit& visit) {
  using Kind = Operand::Kind;
  if (operand.kind == Kind::symbol || operand.kind == Kind::address) visit(operand.name);
  for (Operand& element : operand.elements) visit_names(element, visit);
}

template <typename Visit>
void visit_names(Function& function, const Visit& visit) {
  const auto hidden = names_within(function);
  const auto visit_visible = [&](std::string& name) {
    if (!hidden.contains(name)) visit(name);
  };
  for (Instruction& instruction : function.body) {
    for (Operand& operand : instruction.operands) visit_names(operand, visit_visible);
  }
  for (BranchTable& table : function.branch_tables) {
    for (std::string& target : table.targets) visit_visible(target);
  }
}

class Linker {
 public:
  explicit Linker(std::vector<LinkInput> inputs) : inputs_(std::move(inputs)), table_(inputs_) {}

  Module link() {
    errors_ = table_.errors();
    for (const auto& [name, symbol] : table_.symbols()) taken_.emplace(name);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      keep_apart(inputs_[i].module, i);
      check_uses(inputs_[i]);
    }
    if (!errors_.text().empty()) throw LinkError(errors_.text());
    for (std::size_t i = 0; i < inputs_.size(); ++i) take(inputs_[i].module, i);
    return std::move(result_);
  }

 private:
  void keep_apart(Module& module, std::size_t input) {
    NewNames names;
    const auto settle = [&](const std::string& name) {
      if (taken_.insert(name).second) return;
      // No name in PTX has an '@'; a file's own names differ from each other.
      std::string& changed = names[name] = name + "@" + std::to_string(input + 1);
      taken_.insert(changed);
    };
    for (const Function& function : module.functions) {
      if (function.linkage == Linkage::local && !function.is_declaration) settle(function.name);
    }
    for (const Variable& variable : module.variables) {
      const bool is_dynamic = variable.space == Space::shared && variable.is_extern;
      const bool is_own = variable.linkage == Linkage::local || variable.space == Space::shared;
      if (is_own && !is_dynamic) settle(variable.name);
    }
    if (names.empty()) return;
    const auto change = [&](std::string& name) { rename(name, names); };
    for (Function& function : module.functions) {
      visit_names(function, change);
      change(function.name);
    }
    for (Variable& variable : module.variables) {
      for (Operand& value : variable.initial) visit_names(value, change);
      change(variable.name);
    }
  }

  // What the input names and nobody defines. A name that it does not even declare is no link error.
  void check_uses(LinkInput& input) {
    std::unordered_set<std::string> reported;
    const auto check = [&](const std::string& name) {
      const auto found = table_.symbols().find(name);
      if (found == table_.symbols().end() || found->second.defined) return;
      const auto known = functions_of_the_driver();
      if (std::find(known.begin(), known.end(), name) != known.end()) return;
      if (!reported.insert(name).second) return;
      errors_.add("Undefined reference to " + in_quotes(name) + " in " + in_quotes(input.name));
    };
    for (Function& function : input.module.functions) visit_names(function, check);
    for (Variable& variable : input.module.variables) {
      for (Operand& value : variable.initial) visit_names(value, check);
    }
  }

  // Whether this input's thing of the name is the one that stays.
  template <typename Thing>
  bool stays(const Thing& thing, std::size_t input) {
    const auto found = table_.symbols().find(thing.name);
    if (found == table_.symbols().end()) return kept_.insert(thing.name).second;
    const Symbol& symbol = found->second;
    if (symbol.defined) return symbol.definer == input && is_definition(thing);
    return kept_.insert(thing.name).second;  // the driver's own, or never used
  }

  void take(Module& module, std::size_t input) {
    if (input == 0) {
      result_.version = module.version;
      result_.target = module.target;
    }
    // The lines of one text say nothing about those of another.
    if (inputs_.size() == 1) result_.sources = std::move(module.sources);
    for (Function& function : module.functions) {
      if (stays(function, input)) result_.functions.push_back(std::move(function));
    }
    for (Variable& variable : module.variables) {
      const bool is_dynamic = variable.space == Space::shared && variable.is_extern;
      if (variable.is_extern && !is_dynamic) continue;
      if (stays(variable, input)) result_.variables.push_back(std::move(variable));
    }
  }

  std::vector<LinkInput> inputs_;
  Table table_;
  Errors errors_;
  std::unordered_set<std::string> taken_, kept_;
  Module result_;
};

}  // namespace

void check_definitions(std::span<const LinkInput> inputs) {
  const Table table(inputs);
  if (!table.errors().text().empty()) throw LinkError(table.errors().text());
}

Module link(std::vector<LinkInput> inputs) {
  return Linker(std::move(inputs)).link();
}

Module with_stand_ins(Module module) {
  for (Function& function : module.functions) {
    const auto known = functions_of_the_driver();
    const bool is_drivers = std::find(known.begin(), known.end(), function.name) != known.end();
    if (!is_drivers && !function.is_entry) function.is_declaration = false;
  }
  for (Variable& variable : module.variables) {
    if (variable.space == Space::shared || !variable.is_extern) continue;
    variable.is_extern = false;
    variable.count = std::max<std::uint64_t>(variable.count, 1);
  }
  return module;
}

std::span<const std::string_view> functions_of_the_driver() noexcept {
  return drivers_own;
}

}  // namespace ctxbroker::software::ptx
