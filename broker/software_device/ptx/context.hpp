// SPDX-License-Identifier: Apache-2.0
// What the parts of the parser share while they read one module. Internal to ptx/.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptx/limits.hpp"
#include "ptx/module.hpp"
#include "ptx/token_stream.hpp"

namespace ctxbroker::software::ptx {

// How many of a thing the module may still have.
struct Budget {
  std::size_t left;
  const char* what;

  // Throws SyntaxError when fewer than `count` are left.
  void spend(std::size_t count, std::uint32_t line) {
    if (count > left) fail(line, std::string("the module has too many ") + what);
    left -= count;
  }
};

struct Alias {
  std::uint32_t line = 0;
  std::string name, target;
};

struct Context {
  explicit Context(std::string_view text) : tokens(text) {}

  TokenStream tokens;
  Module module = {};
  std::unordered_map<std::string, std::size_t> variable_index = {};
  std::unordered_map<std::string, std::size_t> function_index = {};
  std::vector<Alias> aliases = {};

  Budget instructions = {limits::instructions, "instructions"};
  Budget variables = {limits::variables, "variables"};
  Budget functions = {limits::functions, "functions"};
  Budget labels = {limits::labels, "labels"};
  Budget initial_values = {limits::initial_values, "initial values"};
  Budget table_entries = {limits::table_entries, "entries in branch and call tables"};
};

}  // namespace ctxbroker::software::ptx
