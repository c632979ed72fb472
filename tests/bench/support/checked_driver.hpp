// SPDX-License-Identifier: Apache-2.0
// The driver's own functions: the other side of every comparison, and what a plug-in calls.
#pragma once

#include <string>

#include "support/driver_functions.hpp"

namespace ctxbroker::bench {

struct CheckedDriver : DriverFunctions {
  // Takes the driver that is loaded already from this file. Throws std::runtime_error.
  explicit CheckedDriver(const std::string& path);

  // Throws std::runtime_error, naming the call, unless the status is success.
  void check(CUresult status, const char* call) const;
};

// driver.check(driver.cuX(...), "cuX"), for calls outside of what is timed.
#define CTXB_CALL(driver, name, ...) (driver).check((driver).name(__VA_ARGS__), #name)

}  // namespace ctxbroker::bench
