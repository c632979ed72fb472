// SPDX-License-Identifier: Apache-2.0
// A kernel launch, as the entry points hand it on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/module.hpp"
#include "exec/execute.hpp"

namespace ctxbroker::software {

struct LaunchRequest {
  CUfunction function = nullptr;
  exec::Dim3 grid, block;
  unsigned dynamic_shared = 0;  // bytes
  CUstream stream = nullptr;
  void** parameters = nullptr;  // one address per parameter; null if there are none or `extra`
  void** extra = nullptr;       // CU_LAUNCH_PARAM_*
  bool cooperative = false;     // its blocks may wait for each other
};

// A launch that was checked, with its arguments copied, to be executed as often as wanted.
struct KernelCall {
  std::shared_ptr<Function> function;
  std::shared_ptr<Module> module;
  exec::Dim3 grid, block;
  unsigned dynamic_shared = 0;  // bytes
  std::vector<std::byte> arguments;
  bool cooperative = false;
  std::shared_ptr<exec::DeviceHeap> heap;  // of a kernel that calls malloc or free
  const char* owner = nullptr;             // who launched it
};

// How many blocks of so many threads fit on a multiprocessor at once, by the limits that the
// device's attributes state.
unsigned active_blocks(const Function& function, unsigned threads, std::size_t dynamic_shared);

// Checks everything but the stream and copies the arguments. `context` is where the kernel runs (no
// green one); a function of another is CUDA_ERROR_INVALID_HANDLE. Throws Failure.
std::shared_ptr<const KernelCall> make_call(const LaunchRequest& request, Context& context);
// What a command does to execute it.
std::function<CUresult()> work_of(const std::shared_ptr<const KernelCall>& call);
// CUDA_ERROR_INVALID_HANDLE when its module was unloaded since, or died with its context.
void check_loaded(const KernelCall& call);

// Checks everything, copies the arguments and enqueues. Throws Failure.
void launch(const LaunchRequest& request);

}  // namespace ctxbroker::software
