// SPDX-License-Identifier: Apache-2.0
// The gate of this process: which driver stands behind it, and whether its rules are in force.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/gate.hpp"
#include "driver/driver_file.hpp"

namespace ctxbroker::detail {

struct GateState {
  GateMode mode = GateMode::none;
  std::string reason;  // as GateInfo's
};

// Finds the gate in the process, or loads it; then opens the driver behind it. Without a gate, or
// when another driver stands behind it, the driver is loaded as if there were none. [main] thread.
LoadedFile load_driver_behind_gate(const std::filesystem::path& name);

// The same for callers that do without the gate. Where the program links the gate, it has the
// driver's name, and this finds the driver behind it.
LoadedFile load_driver_past_gate(const std::filesystem::path& name);

// Puts the rules in force, for good. Call it after that driver was opened. In a process with two
// copies of this library, the first one has the gate.
GateState enforce_gate(const std::string& driver_path);

// Return what GateInfo says of these, for the gate that was found. Any thread.
int cuda_version_of_gate() noexcept;
std::vector<UnknownFunction> unknown_functions();

// Why the loader does not find that symbol, for the author of a library that links it. Empty: it is
// no function of the driver behind the gate, and of none that the gate knows. Any thread.
std::string why_symbol_is_missing(const std::string& symbol);

}  // namespace ctxbroker::detail
