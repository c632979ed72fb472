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

}  // namespace ctxbroker
