// Modules and functions: a compiled program placed in a context's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/function_settings.hpp"
#include "api/memory_registry.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

struct Context;
struct Module;

struct Function : ConfiguredKernel {
  Function(const std::shared_ptr<Module>& of, const exec::Kernel& its_kernel);

  Context& context;
  CUfunction handle = nullptr;
  const std::weak_ptr<Module> module;  // lives as long as `kernel` does
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
// Takes them out again, after the context's running work.
void unload_module(CUmodule handle);

}  // namespace ctxbroker::software
