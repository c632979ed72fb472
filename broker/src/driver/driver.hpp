// SPDX-License-Identifier: Apache-2.0
// A loaded and initialised driver with its devices. Each broker loads it once. It is never
// unloaded, because drivers start threads and register exit handlers.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "driver/driver_file.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The limits of the device for one launch.
struct DeviceLimits {
  unsigned int grid[3] = {};            // blocks
  unsigned int block[3] = {};           // threads
  unsigned int block_threads = 0;       // product of the three dimensions of a block
  unsigned int shared_bytes = 0;        // per block, for every kernel
  unsigned int shared_optin_bytes = 0;  // per block, for kernels that ask for more
  unsigned int most_shared_bytes() const noexcept {
    return std::max(shared_bytes, shared_optin_bytes);
  }
  bool cooperative = false;  // blocks of one launch may wait for each other
  bool clusters = false;
};

struct Driver {
  DriverInfo info;
  DriverTable table;
  std::vector<CUdevice> handles;     // by ordinal
  std::vector<DeviceInfo> devices;   // the same order
  std::vector<DeviceLimits> limits;  // the same order
};

struct DriverRequest {
  std::optional<DriverChoice>
      choice;  // the host's choice; CTXBROKER_DRIVER decides when this is unset
  std::filesystem::path software_device;  // its library; empty means the one beside this library
  DriverLoader load = load_driver_file;
};

// Loads and initialises the driver. Throws Error: driver_choice, no_driver, no_device, driver_call.
Driver open_driver(const DriverRequest& request);

// Which driver was asked for, and by whom.
struct ChosenDriver {
  DriverChoice choice = DriverChoice::automatic;
  std::string reason;  // "CTXBROKER_DRIVER=software"
};

// The host's option wins over the environment. `environment` is the value of CTXBROKER_DRIVER, or
// null. Throws Error (driver_choice) when that value names no driver.
ChosenDriver choose_driver(std::optional<DriverChoice> option, const char* environment);

}  // namespace ctxbroker::detail
