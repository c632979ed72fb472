// The gate of this process: which driver it stands before, and whether its policies are in force.
#pragma once

#include <filesystem>
#include <string>

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

// The same for those who do without the gate. Where the program links it, it has the driver's name:
// then this finds the driver that stands behind it.
LoadedFile load_driver_past_gate(const std::filesystem::path& name);

// After that driver was opened: the policies are in force from now on, for good. In a process with
// two copies of this library the first has the gate.
GateState enforce_gate(const std::string& driver_path);

}  // namespace ctxbroker::detail
