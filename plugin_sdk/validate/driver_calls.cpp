// SPDX-License-Identifier: Apache-2.0
#include "driver_calls.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace ctxbroker::validate {
namespace {

DriverCalls calls;

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

template <typename Function>
void find_required(void* library, const char* name, Function*& function) {
  find(library, name, function);
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
}

}  // namespace

void bind_driver(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("the driver " + path + " is not loaded");
  find_required(library, "cuMemAlloc_v2", calls.mem_alloc);
  find_required(library, "cuMemFree_v2", calls.mem_free);
  find_required(library, "cuMemcpyHtoDAsync_v2", calls.copy_to_device);
  find_required(library, "cuMemcpyDtoH_v2", calls.copy_to_host);
  find_required(library, "cuMemcpyDtoDAsync_v2", calls.copy_on_device);
  find_required(library, "cuMemcpy2D_v2", calls.copy_2d);
  find_required(library, "cuStreamSynchronize", calls.stream_synchronize);
  find_required(library, "cuLaunchHostFunc", calls.launch_host_function);
  find_required(library, "cuMemGetInfo_v2", calls.memory_info);
  find_required(library, "cuDevicePrimaryCtxGetState", calls.primary_state);
  find(library, "ctxb_software_fail_call", calls.fail_call);
  find(library, "ctxb_software_stop_counting", calls.stop_counting);
  find(library, "ctxb_software_failed_call", calls.failed_call);
}

const DriverCalls& driver() noexcept {
  return calls;
}

}  // namespace ctxbroker::validate
