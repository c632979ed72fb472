// SPDX-License-Identifier: Apache-2.0
#include "api/module.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/logs.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

std::byte* memory_of(const Block& block) {
  return reinterpret_cast<std::byte*>(block.begin);  // NOLINT(performance-no-int-to-ptr)
}

// Whole pages of a large variable are given back to the system, which has zeros in their place when
// they are used: a variable takes no memory and no time for what nothing uses.
void fill_with_zeros(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t page = 4096, large = std::size_t{1} << 20;
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(memory) % page) % page;
  if (bytes >= large) {
    const std::size_t pages = (bytes - before) / page * page;
    if (madvise(memory + before, pages, MADV_DONTNEED) == 0) {
      std::memset(memory, 0, before);
      memory += before + pages;
      bytes -= before + pages;
    }
  }
  if (bytes != 0) std::memset(memory, 0, bytes);
}

// Writes the initial values; every variable has its address by now.
void initialise_variables(const Module& module) {
  const auto& globals = module.program->globals;
  std::unordered_map<std::string_view, std::uint64_t> addresses;
  for (std::size_t i = 0; i < globals.size(); ++i)
    addresses[globals[i].name] = module.global_addresses[i];
  for (std::size_t i = 0; i < globals.size(); ++i) {
    const exec::GlobalVariable& variable = globals[i];
    std::byte* memory = memory_of(*module.blocks[i]);
    const std::size_t initial = std::min<std::size_t>(variable.size, variable.initial.size());
    if (initial != 0) std::memcpy(memory, variable.initial.data(), initial);
    fill_with_zeros(memory + initial, variable.size - initial);
    for (const exec::Relocation& relocation : variable.relocations) {
      auto found = addresses.find(relocation.symbol);
      if (found == addresses.end() || variable.size < sizeof(std::uint64_t) ||
          relocation.offset > variable.size - sizeof(std::uint64_t)) {
        log_error("module: the initial value of " + variable.name + " refers to " +
                  relocation.symbol + ", which is no variable of the module");
        fail(CUDA_ERROR_INVALID_PTX);
      }
      std::uint64_t value = found->second + static_cast<std::uint64_t>(relocation.addend);
      std::memcpy(memory + relocation.offset, &value, sizeof value);
    }
  }
}

void release_variables(const Module& module) {
  for (const auto& block : module.blocks) Process::instance().memory.remove(*block);
}

}  // namespace

Function::Function(const std::shared_ptr<Module>& of, const exec::Kernel& its_kernel)
    : ConfiguredKernel(its_kernel), context(of->context), module(of) {}

Module::Module(Context& of, std::shared_ptr<const exec::Program> its_program)
    : context(of), program(std::move(its_program)) {}

std::shared_ptr<Module> place_module(Context& context,
                                     std::shared_ptr<const exec::Program> program) {
  Process& process = Process::instance();
  auto module = std::make_shared<Module>(context, std::move(program));
  auto admit = [&] { context.check_alive(); };
  try {
    for (const exec::GlobalVariable& variable : module->program->globals) {
      if (variable.alignment > device_limits::alignment) {
        log_error("module: the variable " + variable.name + " is aligned to " +
                  std::to_string(variable.alignment) +
                  " bytes, and the software device aligns to " +
                  std::to_string(device_limits::alignment) + " at most");
        fail(CUDA_ERROR_INVALID_PTX);
      }
      std::size_t bytes = std::max<std::size_t>(1, variable.size);
      module->blocks.push_back(process.memory.allocate(Block::Kind::module, context, bytes, 0));
      module->global_addresses.push_back(module->blocks.back()->begin);
    }
    initialise_variables(*module);
    for (const exec::Kernel& kernel : module->program->kernels)
      module->functions.push_back(
          process.functions.insert(std::make_shared<Function>(module, kernel), admit));
    process.modules.insert(module, admit);
  } catch (...) {
    release_variables(*module);
    process.functions.take_all(
        [&](const Function& function) { return function.module.lock() == module; });
    throw;
  }
  return module;
}

void unload_module(CUmodule handle) {
  Process& process = Process::instance();
  std::shared_ptr<Module> module = process.modules.take(handle);
  for (CUfunction function : module->functions) {
    try {
      process.functions.take(function);
    } catch (const Failure&) {  // gone with its context at this very moment
    }
  }
  Executor& executor = module->context.device.executor;
  executor.wait(executor.pending_users(module.get()));
  executor.wait(executor.running_kernels_of_family(&module->context));
  release_variables(*module);
}

}  // namespace ctxbroker::software
