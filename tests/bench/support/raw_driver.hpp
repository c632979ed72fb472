// SPDX-License-Identifier: Apache-2.0
// The driver's own functions: the other side of every comparison, and what a plug-in calls.
#pragma once

// NVIDIA's switch that declares every version of every function under its own name.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT(bugprone-reserved-identifier)
#include <cuda.h>

#include <string>

namespace ctxbroker::bench {

// clang-format off
#define CTXB_RAW_CALLS(X) \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetCurrent) X(cuCtxSynchronize) \
  X(cuDevicePrimaryCtxReset_v2) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) \
  X(cuEventSynchronize) X(cuFuncLoad) X(cuGetErrorName) X(cuLaunchKernel) X(cuLibraryGetModule) \
  X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLinkAddData_v2) X(cuLinkComplete) \
  X(cuLinkCreate_v2) X(cuLinkDestroy) X(cuMemAlloc_v2) X(cuMemAllocHost_v2) \
  X(cuMemFreeHost) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuMemcpyDtoHAsync_v2) \
  X(cuMemcpyHtoDAsync_v2) X(cuMemsetD8_v2) X(cuModuleGetFunction) X(cuModuleLoadData) \
  X(cuModuleUnload) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphDestroy) \
  X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize)
// clang-format on

struct RawDriver {
  // Of the driver that is loaded already from this file. Throws std::runtime_error.
  explicit RawDriver(const std::string& path);

  // Throws std::runtime_error, naming the call, unless the status is success.
  void check(CUresult status, const char* call) const;

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define CTXB_MEMBER(name) decltype(&::name) name = nullptr;
  CTXB_RAW_CALLS(CTXB_MEMBER)
#undef CTXB_MEMBER
};

// driver.check(driver.cuX(...), "cuX"), for calls outside of what is timed.
#define CTXB_CALL(driver, name, ...) (driver).check((driver).name(__VA_ARGS__), #name)

}  // namespace ctxbroker::bench
