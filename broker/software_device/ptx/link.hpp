// SPDX-License-Identifier: Apache-2.0
// Several modules to one: names that are visible meet, names that are not stay apart.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/module.hpp"

namespace ctxbroker::software::ptx {

struct LinkInput {
  std::string name;  // in errors
  Module module;
};

// what() holds a line for each error, in the words of NVIDIA's linker.
class LinkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether the inputs can stand beside each other. Throws LinkError for what is defined twice and
// for declarations that do not match.
void check_definitions(std::span<const LinkInput> inputs);

// Throws LinkError; also for what is used and defined nowhere. A module's own names that another
// has too are changed ("name@2").
Module link(std::vector<LinkInput> inputs);

// The module with a definition that does nothing for all that it expects of others: what is wrong
// in it shows when that is compiled.
Module with_stand_ins(Module module);

// What a module may call though no module defines it.
std::span<const std::string_view> functions_of_the_driver() noexcept;

}  // namespace ctxbroker::software::ptx
