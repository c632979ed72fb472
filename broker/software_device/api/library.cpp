// SPDX-License-Identifier: Apache-2.0
#include "api/library.hpp"

#include <utility>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/module.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {

LibraryKernel::LibraryKernel(const std::shared_ptr<Library>& of, const exec::Kernel& its_kernel)
    : library(of), kernel(its_kernel) {
  for (std::size_t i = 0; i < Process::instance().devices.size(); ++i)
    devices_.push_back(std::make_unique<ConfiguredKernel>(its_kernel));
}

ConfiguredKernel& LibraryKernel::on(CUdevice device) const {
  find_device(device);
  return *devices_[static_cast<std::size_t>(device)];
}

Library::Library(std::shared_ptr<const exec::Program> its_program)
    : program(std::move(its_program)) {}

std::shared_ptr<Library> Library::create(std::shared_ptr<const exec::Program> program) {
  Process& process = Process::instance();
  auto made = std::make_shared<Library>(std::move(program));
  auto admit = [] {};
  for (const exec::Kernel& kernel : made->program->kernels) {
    made->kernels.push_back(std::make_shared<LibraryKernel>(made, kernel));
    process.kernels.insert(made->kernels.back(), admit);
  }
  process.libraries.insert(made, admit);
  return made;
}

std::shared_ptr<Module> Library::module_in(Context& context) {
  std::unique_lock lock(mutex_);
  const auto known_module = [&] {
    check_that(!unloaded_, CUDA_ERROR_INVALID_HANDLE);
    std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
    return modules_[context.id].lock();
  };
  if (auto module = known_module()) return module;
  lock.unlock();
  wait_for_kernels(context);
  lock.lock();
  if (auto module = known_module()) return module;  // of a thread that has waited as well
  std::shared_ptr<Module> placed = place_module(context, program);
  placed->of_library = true;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    auto function = Process::instance().functions.find(placed->functions[i]);
    const ConfiguredKernel& kernel = kernels[i]->on(context.device.ordinal);
    function->inherited = {kernels[i], &kernel.settings};
  }
  modules_[context.id] = placed;
  return placed;
}

void Library::unload() {
  Process& process = Process::instance();
  std::map<std::uint64_t, std::weak_ptr<Module>> modules;
  {
    std::lock_guard lock(mutex_);
    unloaded_ = true;
    modules.swap(modules_);
  }
  for (const auto& kernel : kernels) process.kernels.take(kernel->handle);
  for (const auto& [context, weak] : modules) {
    std::shared_ptr<Module> module = weak.lock();
    if (module == nullptr) continue;
    try {
      unload_module(module->handle);
    } catch (const Failure&) {  // gone with its context at this very moment
    }
  }
}

std::shared_ptr<Function> function_in(const LibraryKernel& kernel, Context& context) {
  std::shared_ptr<Library> library = kernel.library.lock();
  check_that(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
  std::shared_ptr<Module> module = library->module_in(context);
  auto index = static_cast<std::size_t>(&kernel.kernel - library->program->kernels.data());
  return Process::instance().functions.find(module->functions[index]);
}

std::shared_ptr<Function> find_function(CUfunction handle, Context& context) {
  if (kind_of(handle) != HandleKind::kernel) return Process::instance().functions.find(handle);
  auto kernel = Process::instance().kernels.find(reinterpret_cast<CUkernel>(handle));
  return function_in(*kernel, context);
}

}  // namespace ctxbroker::software
