// SPDX-License-Identifier: Apache-2.0
// Libraries: programs that belong to no context. A library is placed in a context, as a module of
// it, when something of it is first needed there (the driver's lazy loading).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/function_settings.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

struct Context;
struct Function;
struct Module;
class Library;

struct LibraryKernel {
  LibraryKernel(const std::shared_ptr<Library>& of, const exec::Kernel& its_kernel);

  // As set for one device; CUDA_ERROR_INVALID_DEVICE.
  ConfiguredKernel& on(CUdevice device) const;

  CUkernel handle = nullptr;
  const std::weak_ptr<Library> library;
  const exec::Kernel& kernel;  // lives as long as the library

 private:
  std::vector<std::unique_ptr<ConfiguredKernel>> devices_;  // by ordinal
};

class Library {
 public:
  // Enters the library and its kernels in the process's tables.
  static std::shared_ptr<Library> create(std::shared_ptr<const exec::Program> program);
  explicit Library(std::shared_ptr<const exec::Program> its_program);

  // Its module in a context (no green one), placed there if it is not yet.
  std::shared_ptr<Module> module_in(Context& context);
  // Takes it and all its modules out.
  void unload();

  CUlibrary handle = nullptr;
  const std::shared_ptr<const exec::Program> program;
  std::vector<std::shared_ptr<LibraryKernel>> kernels;  // one per kernel of the program

 private:
  std::mutex mutex_;
  bool unloaded_ = false;
  std::map<std::uint64_t, std::weak_ptr<Module>> modules_;  // by the context's id
};

// The function of a kernel in a context (no green one).
std::shared_ptr<Function> function_in(const LibraryKernel& kernel, Context& context);

// What launches and occupancy take: a function's handle, or a kernel's, which stands for its
// function in `context`. CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<Function> find_function(CUfunction handle, Context& context);

}  // namespace ctxbroker::software
