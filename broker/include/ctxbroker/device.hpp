// One CUDA device, as the driver describes it.
#pragma once

#include <cstdint>
#include <string>

namespace ctxbroker {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
};

// Whether the broker keeps everybody in the process from destroying a device's primary context.
struct ShieldInfo {
  bool in_use = false;  // the broker uses the device; before that it touches nothing there
  bool up = false;      // a reset of the device is refused by the driver
  std::string reason;   // why it is not up
};

}  // namespace ctxbroker
