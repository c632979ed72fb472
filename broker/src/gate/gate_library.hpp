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
  // The file that has had the driver's name since before: the gate comes late. Empty: the gate has.
  std::string driver_before;
};

// The gate, where it has the driver's name in this process already: because the program links it,
// or a broker loaded it. Else null.
const ctxb_gate* gate_by_name() noexcept;

// Looks once per call. Where another library has the driver's name already, the gate is loaded all
// the same: who asks for that name goes on getting the other one.
GateLibrary find_gate(const std::filesystem::path& file);

// Whether two paths lead to one library that is in the process.
bool is_loaded_as(const std::string& path, const std::string& other);

// Where it stands: ctxbroker/ctxbroker_gate.so beside the file this code is in, or in ../lib of it.
std::filesystem::path default_gate_file();

}  // namespace ctxbroker::detail
