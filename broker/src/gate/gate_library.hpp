// Finds the gate library in this process, or loads it.
#pragma once

#include <filesystem>
#include <string>

#include "gate/library/gate.h"

namespace ctxbroker::detail {

struct GateLibrary {
  const ctxb_gate* gate = nullptr;
  std::string reason;  // why there is none; or how it came: "linked by the host"
  // The file that had the driver's name before the gate came, which is late then. Empty: the gate
  // has the name.
  std::string driver_before;
};

// The gate that has the driver's name in this process already, because the program links it or a
// broker loaded it. Null: none has.
const ctxb_gate* gate_by_name() noexcept;

// Finds the gate, or loads it from `file`. It is loaded also where another library has the driver's
// name already; who asks for that name goes on getting the other library.
GateLibrary find_gate(const std::filesystem::path& file);

// Whether two paths lead to one library that is in the process.
bool is_loaded_as(const std::string& path, const std::string& other);

// ctxbroker/ctxbroker_gate.so, beside the file that this code is in or in ../lib of it.
std::filesystem::path default_gate_file();

}  // namespace ctxbroker::detail
