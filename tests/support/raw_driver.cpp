// SPDX-License-Identifier: Apache-2.0
#include "support/raw_driver.hpp"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace ctxbroker {
namespace {

void must(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(call) + " returned " + std::to_string(status));
  }
}

}  // namespace

RawDriver::RawDriver(const std::string& path)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
  if (library_ == nullptr) throw std::runtime_error("driver " + path + " is not loaded");
}

template <typename Function>
Function* RawDriver::function(const char* symbol) const {
  void* found = dlsym(library_, symbol);
  if (found == nullptr) throw std::runtime_error(std::string("no ") + symbol);
  return reinterpret_cast<Function*>(found);
}

CUresult RawDriver::fill(CUdeviceptr address, float value, std::size_t count,
                         CUstream stream) const {
  unsigned int bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return function<CUresult(CUdeviceptr, unsigned int, std::size_t, CUstream)>("cuMemsetD32Async")(
      address, bits, count, stream);
}

CUresult RawDriver::fetch(std::vector<float>& values, CUdeviceptr address, CUstream stream) const {
  must(function<CUresult(void*, CUdeviceptr, std::size_t, CUstream)>("cuMemcpyDtoHAsync_v2")(
           values.data(), address, values.size() * sizeof(float), stream),
       "cuMemcpyDtoHAsync_v2");
  return function<CUresult(CUstream)>("cuStreamSynchronize")(stream);
}

CUresult RawDriver::store(const std::vector<float>& values, CUdeviceptr address,
                          CUstream stream) const {
  must(function<CUresult(CUdeviceptr, const void*, std::size_t, CUstream)>("cuMemcpyHtoDAsync_v2")(
           address, values.data(), values.size() * sizeof(float), stream),
       "cuMemcpyHtoDAsync_v2");
  return function<CUresult(CUstream)>("cuStreamSynchronize")(stream);
}

void RawDriver::init() const {
  must(function<CUresult(unsigned int)>("cuInit")(0), "cuInit");
}

CUcontext RawDriver::make_context() const {
  CUcontext context = nullptr;
  must(function<CUresult(CUcontext*, unsigned int, CUdevice)>("cuCtxCreate_v2")(&context, 0, 0),
       "cuCtxCreate_v2");
  return context;
}

void RawDriver::destroy_context(CUcontext context) const {
  must(function<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), "cuCtxDestroy_v2");
}

CUcontext RawDriver::current() const {
  CUcontext context = nullptr;
  must(function<CUresult(CUcontext*)>("cuCtxGetCurrent")(&context), "cuCtxGetCurrent");
  return context;
}

std::vector<CUcontext> RawDriver::stack() const {
  auto* pop = function<CUresult(CUcontext*)>("cuCtxPopCurrent_v2");
  auto* push = function<CUresult(CUcontext)>("cuCtxPushCurrent_v2");
  std::vector<CUcontext> contexts;
  CUcontext popped = nullptr;
  while (current() != nullptr && pop(&popped) == CUDA_SUCCESS) contexts.push_back(popped);
  for (auto one = contexts.rbegin(); one != contexts.rend(); ++one) must(push(*one), "push");
  return contexts;
}

void RawDriver::pop_all() const {
  auto* pop = function<CUresult(CUcontext*)>("cuCtxPopCurrent_v2");
  CUcontext popped = nullptr;
  while (current() != nullptr && pop(&popped) == CUDA_SUCCESS) {
  }
}

CUresult RawDriver::allocate(std::size_t bytes) const {
  CUdeviceptr address = 0;
  return function<decltype(cuMemAlloc)>("cuMemAlloc_v2")(&address, bytes);
}

CUcontext RawDriver::retain_primary(int device) const {
  CUcontext context = nullptr;
  must(function<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&context, device),
       "cuDevicePrimaryCtxRetain");
  return context;
}

bool RawDriver::primary_is_active(int device) const {
  unsigned int flags = 0;
  int active = 0;
  must(function<CUresult(CUdevice, unsigned int*, int*)>("cuDevicePrimaryCtxGetState")(
           device, &flags, &active),
       "cuDevicePrimaryCtxGetState");
  return active != 0;
}

unsigned RawDriver::primary_flags(int device) const {
  unsigned int flags = 0;
  int active = 0;
  must(function<CUresult(CUdevice, unsigned int*, int*)>("cuDevicePrimaryCtxGetState")(
           device, &flags, &active),
       "cuDevicePrimaryCtxGetState");
  return flags;
}

void RawDriver::set_primary_flags(int device, unsigned flags) const {
  must(function<CUresult(CUdevice, unsigned int)>("cuDevicePrimaryCtxSetFlags_v2")(device, flags),
       "cuDevicePrimaryCtxSetFlags_v2");
}

CUresult RawDriver::synchronize() const {
  return function<CUresult()>("cuCtxSynchronize")();
}

CUresult RawDriver::launch_host_function(CUstream stream, CUhostFn work, void* data) const {
  return function<CUresult(CUstream, CUhostFn, void*)>("cuLaunchHostFunc")(stream, work, data);
}

CUresult RawDriver::on_device(const char* symbol, int device) const {
  return function<CUresult(CUdevice)>(symbol)(device);
}

bool RawDriver::can_access_peer(int device, int peer) const {
  int can = 0;
  must(function<CUresult(int*, CUdevice, CUdevice)>("cuDeviceCanAccessPeer")(&can, device, peer),
       "cuDeviceCanAccessPeer");
  return can != 0;
}

CUresult RawDriver::fill(CUdeviceptr address, unsigned char value, std::size_t bytes) const {
  return function<CUresult(CUdeviceptr, unsigned char, std::size_t)>("cuMemsetD8_v2")(address,
                                                                                      value, bytes);
}

void RawDriver::set_current(CUcontext context) const {
  must(function<CUresult(CUcontext)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
}

void RawDriver::pop_if_any() const {
  CUcontext popped = nullptr;
  if (current() != nullptr) function<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped);
}

void RawDriver::push(CUcontext context) const {
  must(function<CUresult(CUcontext)>("cuCtxPushCurrent_v2")(context), "cuCtxPushCurrent_v2");
}

void RawDriver::pop() const {
  CUcontext popped = nullptr;
  must(function<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped), "cuCtxPopCurrent_v2");
}

CUresult RawDriver::fault() const {
  static constexpr char trap[] =
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".visible .entry faults() {\n  trap;\n}\n";
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  must(function<CUresult(CUmodule*, const void*)>("cuModuleLoadData")(&module, trap),
       "cuModuleLoadData");
  must(function<CUresult(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction")(
           &kernel, module, "faults"),
       "cuModuleGetFunction");
  must(function<decltype(cuLaunchKernel)>("cuLaunchKernel")(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                                            nullptr, nullptr),
       "cuLaunchKernel");
  return function<CUresult()>("cuCtxSynchronize")();
}

std::size_t RawDriver::free_memory() const {
  std::size_t free = 0, total = 0;
  must(function<CUresult(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&free, &total),
       "cuMemGetInfo_v2");
  return free;
}

}  // namespace ctxbroker
