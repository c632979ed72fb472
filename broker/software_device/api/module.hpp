// SPDX-License-Identifier: Apache-2.0
// Modules and functions: a compiled program placed in a context's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/function_settings.hpp"
#include "api/memory_registry.hpp"
#include "exec/execute.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

struct Context;
struct Module;

// What cuFuncSetBlockShape, cuFuncSetSharedSize and cuParamSet* have set for cuLaunch*.
struct OldLaunch {
  std::mutex mutex;  // guards what follows
  exec::Dim3 block{0, 0, 0};
  unsigned shared_bytes = 0, bytes = 0;  // dynamic; of the arguments
  std::vector<std::byte> arguments;
};

struct Function : ConfiguredKernel {
  Function(const std::shared_ptr<Module>& of, const exec::Kernel& its_kernel);

  Context& context;
  CUfunction handle = nullptr;
  const std::weak_ptr<Module> module;  // lives as long as `kernel` does
  OldLaunch old_launch;
};

struct Module {
  Module(Context& of, std::shared_ptr<const exec::Program> its_program);

  Context& context;
  CUmodule handle = nullptr;
  const std::shared_ptr<const exec::Program> program;
  std::vector<std::shared_ptr<Block>> blocks;   // one per variable of the program
  std::vector<std::uint64_t> global_addresses;  // the same, as launches want them
  std::vector<CUfunction> functions;            // one per kernel of the program
  std::atomic<bool> of_library = false;         // unloaded with it, and only so
};

// Places the program's variables in memory, with their initial values, and enters the module and
// its functions in the process's tables.
std::shared_ptr<Module> place_module(Context& context,
                                     std::shared_ptr<const exec::Program> program);
// Takes them out again, after the kernels that run and the work that uses them.
void unload_module(CUmodule handle);

}  // namespace ctxbroker::software
