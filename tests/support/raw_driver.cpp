// SPDX-License-Identifier: Apache-2.0
#include "support/raw_driver.hpp"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

#include "support/kernels.hpp"

namespace ctxbroker {

RawDriver::RawDriver(const std::string& path)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
  if (library_ == nullptr) throw std::runtime_error("driver " + path + " is not loaded");
}

void* RawDriver::find(const char* symbol) const noexcept {
  return dlsym(library_, symbol);
}

CUresult RawDriver::fill(CUdeviceptr address, float value, std::size_t count,
                         CUstream stream) const {
  unsigned int bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return call("cuMemsetD32Async", address, bits, count, stream);
}

CUresult RawDriver::fetch(std::vector<float>& values, CUdeviceptr address, CUstream stream) const {
  void* const to = values.data();
  check_call("cuMemcpyDtoHAsync_v2", to, address, values.size() * sizeof(float), stream);
  return call("cuStreamSynchronize", stream);
}

CUresult RawDriver::store(const std::vector<float>& values, CUdeviceptr address,
                          CUstream stream) const {
  const void* const from = values.data();
  check_call("cuMemcpyHtoDAsync_v2", address, from, values.size() * sizeof(float), stream);
  return call("cuStreamSynchronize", stream);
}

void RawDriver::init() const {
  check_call("cuInit", 0U);
}

CUcontext RawDriver::make_context() const {
  CUcontext context = nullptr;
  check_call("cuCtxCreate_v2", &context, 0U, CUdevice{0});
  return context;
}

void RawDriver::destroy_context(CUcontext context) const {
  check_call("cuCtxDestroy_v2", context);
}

CUcontext RawDriver::current() const {
  CUcontext context = nullptr;
  check_call("cuCtxGetCurrent", &context);
  return context;
}

std::vector<CUcontext> RawDriver::stack() const {
  std::vector<CUcontext> contexts;
  CUcontext popped = nullptr;
  while (current() != nullptr && call("cuCtxPopCurrent_v2", &popped) == CUDA_SUCCESS) {
    contexts.push_back(popped);
  }
  for (auto one = contexts.rbegin(); one != contexts.rend(); ++one) push(*one);
  return contexts;
}

void RawDriver::pop_all() const {
  CUcontext popped = nullptr;
  while (current() != nullptr && call("cuCtxPopCurrent_v2", &popped) == CUDA_SUCCESS) {
  }
}

CUresult RawDriver::allocate(std::size_t bytes) const {
  CUdeviceptr address = 0;
  return call("cuMemAlloc_v2", &address, bytes);
}

CUcontext RawDriver::retain_primary(int device) const {
  CUcontext context = nullptr;
  check_call("cuDevicePrimaryCtxRetain", &context, device);
  return context;
}

bool RawDriver::primary_is_active(int device) const {
  unsigned int flags = 0;
  int active = 0;
  check_call("cuDevicePrimaryCtxGetState", device, &flags, &active);
  return active != 0;
}

unsigned RawDriver::primary_flags(int device) const {
  unsigned int flags = 0;
  int active = 0;
  check_call("cuDevicePrimaryCtxGetState", device, &flags, &active);
  return flags;
}

void RawDriver::set_primary_flags(int device, unsigned flags) const {
  check_call("cuDevicePrimaryCtxSetFlags_v2", device, flags);
}

CUresult RawDriver::synchronize() const {
  return call("cuCtxSynchronize");
}

CUresult RawDriver::launch_host_function(CUstream stream, CUhostFn work, void* data) const {
  return call("cuLaunchHostFunc", stream, work, data);
}

bool RawDriver::can_access_peer(int device, int peer) const {
  int can = 0;
  check_call("cuDeviceCanAccessPeer", &can, device, peer);
  return can != 0;
}

CUresult RawDriver::fill(CUdeviceptr address, unsigned char value, std::size_t bytes) const {
  return call("cuMemsetD8_v2", address, value, bytes);
}

void RawDriver::set_current(CUcontext context) const {
  check_call("cuCtxSetCurrent", context);
}

void RawDriver::pop_if_any() const {
  CUcontext popped = nullptr;
  if (current() != nullptr) call("cuCtxPopCurrent_v2", &popped);
}

void RawDriver::push(CUcontext context) const {
  check_call("cuCtxPushCurrent_v2", context);
}

void RawDriver::pop() const {
  CUcontext popped = nullptr;
  check_call("cuCtxPopCurrent_v2", &popped);
}

CUresult RawDriver::fault() const {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  constexpr CUstream stream = nullptr;
  constexpr void** none = nullptr;
  check_call("cuModuleLoadData", &module, static_cast<const void*>(trap_ptx));
  check_call("cuModuleGetFunction", &kernel, module, "trap");
  check_call("cuLaunchKernel", kernel, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, none, none);
  return synchronize();
}

std::size_t RawDriver::free_memory() const {
  std::size_t free = 0, total = 0;
  check_call("cuMemGetInfo_v2", &free, &total);
  return free;
}

}  // namespace ctxbroker
