// Whether the gate stands between the plug-ins and the driver.
#pragma once

#include <string>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

// When the gate came into the process.
enum class GateMode {
  none,
  before_driver,  // whoever asks for the driver gets the gate
  late,           // the driver was there first: tenants' own libraries are led to the gate
};
CTXB_API const char* to_string(GateMode mode) noexcept;  // "none", "before_driver", "late"

struct GateInfo {
  bool in_force = false;  // before_driver or late
  std::string reason;     // why not; or how it came, and when late what it cannot hold
  GateMode mode = GateMode::none;
  // Profilers, checkers, debuggers and interposers in the process: what each is, and what follows.
  std::vector<std::string> tools{};
};

}  // namespace ctxbroker
