// Which driver is asked for: the host's option, the environment, or neither.
#pragma once

#include <optional>
#include <string>

#include "ctxbroker/driver.hpp"

namespace ctxbroker::detail {

struct ChosenDriver {
  DriverChoice choice = DriverChoice::automatic;
  std::string reason;  // "CTXBROKER_DRIVER=software"
};

// `environment` is the value of CTXBROKER_DRIVER, or null. Throws Error: driver_choice.
ChosenDriver choose_driver(std::optional<DriverChoice> option, const char* environment);

}  // namespace ctxbroker::detail
