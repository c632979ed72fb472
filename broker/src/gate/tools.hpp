// SPDX-License-Identifier: Apache-2.0
// Tools that are in this process beside the gate: profilers, checkers, debuggers, interposers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {

// Describes each one: what it is, how it came, and what follows for the protection. [main] thread.
// Throws std::bad_alloc.
std::vector<std::string> tools_in_process(bool gate_is_in_force);

// The tool that a library with this file name belongs to; "" if none is known.
std::string_view tool_of_library(std::string_view path) noexcept;

}  // namespace ctxbroker::detail
