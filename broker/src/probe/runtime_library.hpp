// NVIDIA's runtime library, where this machine has it as a shared library.
#pragma once

#include <cstddef>
#include <string>

#include "ctxbroker/driver.hpp"

namespace ctxbroker::detail {

struct RuntimeLibrary {
  // All return a cudaError_t's value.
  int (*device_synchronize)() = nullptr;
  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;
  std::string missing;  // why there is none, else empty
};

// `driver` says which driver the process works on: the runtime library works on NVIDIA's alone.
RuntimeLibrary find_runtime_library(DriverChoice driver);

}  // namespace ctxbroker::detail
