// Whether the gate stands between the plug-ins and the driver.
#pragma once

#include <string>

namespace ctxbroker {

struct GateInfo {
  bool in_force = false;
  std::string reason;  // why not; or how it came into the process
};

}  // namespace ctxbroker
