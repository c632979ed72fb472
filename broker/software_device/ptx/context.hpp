// SPDX-License-Identifier: Apache-2.0
// What the parts of the parser share while they read one module. Internal to ptx/.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptx/budget.hpp"
#include "ptx/module.hpp"
#include "ptx/token_stream.hpp"

namespace ctxbroker::software::ptx {

struct Alias {
  std::uint32_t line = 0;
  std::string name, target;
};

struct Context {
  Context(std::string_view text, ModuleBudget& its_budget)
      : tokens(text, its_budget), budget(its_budget) {}

  TokenStream tokens;
  ModuleBudget& budget;
  Module module = {};
  std::unordered_map<std::string, std::size_t> variable_index = {};
  std::unordered_map<std::string, std::size_t> function_index = {};
  std::vector<Alias> aliases = {};

  // Charges what the module is about to hold. More than the limit is not multiplied: it may wrap.
  template <class Thing>
  void charge(std::uint32_t line, std::uint64_t count = 1) {
    const bool is_absurd = count > budget.memory.limit().most;
    budget.memory.spend(is_absurd ? count : count * sizeof(Thing), line);
  }
};

}  // namespace ctxbroker::software::ptx
