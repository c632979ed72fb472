// The driver as every other code of the process finds it: by its name. Behind the gate, when there
// is one.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace ctxbroker {

template <typename... Parameters>
CUresult driver_call(const char* symbol, Parameters... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) throw std::runtime_error(std::string("libcuda.so.1: ") + dlerror());
  auto* const function = reinterpret_cast<CUresult (*)(Parameters...)>(dlsym(driver, symbol));
  if (function == nullptr) throw std::runtime_error(std::string(symbol) + ": not there");
  return function(arguments...);
}

}  // namespace ctxbroker
