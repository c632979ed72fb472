// The gate library in this process: found where the host's link brought it, or loaded now. The
// operating system's part of this room.
#pragma once

#include <filesystem>
#include <string>

#include "gate/library/gate.h"

namespace ctxbroker::detail {

struct GateLibrary {
  const ctxb_gate* gate = nullptr;
  std::string reason;  // why there is none; or how it came: "linked by the host"
};

// Looks once per call. The gate comes too late when another library has the driver's name already.
GateLibrary find_gate(const std::filesystem::path& file);

// Where it stands: ctxbroker/ctxbroker_gate.so beside the file this code is in, or in ../lib of it.
std::filesystem::path default_gate_file();

}  // namespace ctxbroker::detail
