// The gate of this process: which driver it stands before, and whether its policies are in force.
#pragma once

#include <filesystem>
#include <string>

#include "driver/driver_file.hpp"

namespace ctxbroker::detail {

struct GateState {
  bool in_force = false;
  std::string reason;  // why not; or how it came into the process
};

// Finds the gate in the process, or loads it; then opens the driver behind it. Without a gate, or
// when another driver stands behind it, the driver is loaded as if there were none. [main] thread.
LoadedFile load_driver_behind_gate(const std::filesystem::path& name);

// After that driver was opened: the policies are in force from now on, for good. In a process with
// two copies of this library the first has the gate.
GateState enforce_gate(const std::string& driver_path);

}  // namespace ctxbroker::detail
