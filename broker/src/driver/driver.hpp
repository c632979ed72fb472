// A loaded and initialised driver with its devices. Loaded once per broker, never unloaded: drivers
// start threads and register exit handlers of their own.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "driver/driver_file.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// What the device allows in one launch.
struct DeviceLimits {
  unsigned int grid[3] = {};            // blocks
  unsigned int block[3] = {};           // threads
  unsigned int block_threads = 0;       // threads of one block, all directions together
  unsigned int shared_bytes = 0;        // per block, without asking
  unsigned int shared_optin_bytes = 0;  // per block, at most
  bool cooperative = false;             // blocks of one launch may wait for each other
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
  std::optional<DriverChoice> choice;     // the host's; unset: the environment's
  std::filesystem::path software_device;  // its library; empty: beside this library
  DriverLoader load = load_driver_file;
};

// Throws Error: driver_choice, no_driver, no_device, driver_call.
Driver open_driver(const DriverRequest& request);

}  // namespace ctxbroker::detail
