// SPDX-License-Identifier: Apache-2.0
// The driver's functions, called by name. Other code of the process finds the driver by its name,
// too, and so behind the gate, when there is one.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ctxbroker {

inline void* driver_function_by_name(const char* symbol) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) throw std::runtime_error(std::string("libcuda.so.1: ") + dlerror());
  return dlsym(driver, symbol);
}

// Calls a function that was looked up; the arguments have to have its very types.
template <typename... Parameters>
CUresult call_found(void* found, const char* symbol, Parameters... arguments) {
  if (found == nullptr) throw std::runtime_error(std::string(symbol) + ": not there");
  return reinterpret_cast<CUresult (*)(Parameters...)>(found)(arguments...);
}

inline void check_success(CUresult status, const char* symbol) {
  if (status != CUDA_SUCCESS)
    throw std::runtime_error(std::string(symbol) + " returned " + std::to_string(status));
}

// Finds the functions that driver_call calls. A test whose own code is not behind the gate may
// set the look-up of a library that is.
inline void* (*driver_look_up)(const char* symbol) = driver_function_by_name;

template <typename... Parameters>
CUresult driver_call(const char* symbol, Parameters... arguments) {
  return call_found(driver_look_up(symbol), symbol, arguments...);
}

// Throws std::runtime_error unless the call succeeds.
template <typename... Parameters>
void check_driver_call(const char* symbol, Parameters... arguments) {
  check_success(driver_call(symbol, arguments...), symbol);
}

// The context that is current on the calling thread.
inline CUcontext current() {
  CUcontext context = nullptr;
  driver_call("cuCtxGetCurrent", &context);
  return context;
}

// All contexts of the calling thread, bottom first.
using Stack = std::vector<CUcontext>;
inline Stack stack() {
  Stack taken;
  CUcontext context = nullptr;
  while (current() != nullptr && driver_call("cuCtxPopCurrent_v2", &context) == CUDA_SUCCESS)
    taken.insert(taken.begin(), context);
  for (CUcontext one : taken) driver_call("cuCtxPushCurrent_v2", one);
  return taken;
}

// The context that this memory belongs to, or null.
inline CUcontext context_of(CUdeviceptr address) {
  CUcontext context = nullptr;
  driver_call("cuPointerGetAttribute", static_cast<void*>(&context), CU_POINTER_ATTRIBUTE_CONTEXT,
              address);
  return context;
}

// The library that a function is of.
inline std::string file_of(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

}  // namespace ctxbroker
