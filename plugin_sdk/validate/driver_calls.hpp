// SPDX-License-Identifier: Apache-2.0
// The few driver functions that the validator calls itself, to lend guarded memory and to look at
// it. They are found by name in the driver that the broker has loaded.
#pragma once

#include <cuda.h>

#include <string>

namespace ctxbroker::validate {

struct DriverCalls {
  CUresult (*mem_alloc)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*mem_free)(CUdeviceptr) = nullptr;
  CUresult (*copy_to_device)(CUdeviceptr, const void*, std::size_t, CUstream) = nullptr;
  CUresult (*copy_to_host)(void*, CUdeviceptr, std::size_t) = nullptr;
  CUresult (*copy_on_device)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) = nullptr;
  CUresult (*copy_2d)(const CUDA_MEMCPY2D*) = nullptr;
  CUresult (*stream_synchronize)(CUstream) = nullptr;
  CUresult (*launch_host_function)(CUstream, CUhostFn, void*) = nullptr;
  CUresult (*memory_info)(std::size_t*, std::size_t*) = nullptr;
  CUresult (*primary_state)(CUdevice, unsigned int*, int*) = nullptr;
  // Of the software device only; else null.
  int (*fail_call)(const char*, std::uint64_t, int) = nullptr;
  void (*stop_counting)() = nullptr;
  const char* (*failed_call)() = nullptr;
};

// Finds them in the driver's file, which is loaded. Throws std::runtime_error when one is missing.
void bind_driver(const std::string& path);
const DriverCalls& driver() noexcept;

}  // namespace ctxbroker::validate
