// SPDX-License-Identifier: Apache-2.0
#include "support/checked_driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace ctxbroker::bench {
namespace {

void* loaded(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("the driver " + path + " is not loaded");
  return library;
}

}  // namespace

CheckedDriver::CheckedDriver(const std::string& path) : DriverFunctions(loaded(path)) {
  // The newest function that benchmarks call.
  if (cuFuncLoad == nullptr) throw std::runtime_error(path + " is older than CUDA 12.4");
}

void CheckedDriver::check(CUresult status, const char* call) const {
  if (status == CUDA_SUCCESS) return;
  const char* name = "an unknown status";
  cuGetErrorName(status, &name);
  throw std::runtime_error(std::string(call) + " returned " + name);
}

}  // namespace ctxbroker::bench
