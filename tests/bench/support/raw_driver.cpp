// SPDX-License-Identifier: Apache-2.0
#include "support/raw_driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace ctxbroker::bench {

RawDriver::RawDriver(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("the driver " + path + " is not loaded");
#define CTXB_FIND(name)                                             \
  (name) = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  if ((name) == nullptr) throw std::runtime_error(path + " has no " #name);
  CTXB_RAW_CALLS(CTXB_FIND)
#undef CTXB_FIND
}

void RawDriver::check(CUresult status, const char* call) const {
  if (status == CUDA_SUCCESS) return;
  const char* name = "an unknown status";
  cuGetErrorName(status, &name);
  throw std::runtime_error(std::string(call) + " returned " + name);
}

}  // namespace ctxbroker::bench
