// SPDX-License-Identifier: Apache-2.0
// What can be asked of a kernel and set for it, of a function as of a library's kernel.
#pragma once

#include <atomic>
#include <memory>

#include "api/cuda_api.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

// What was set. Nothing yet: `unset`.
struct FunctionSettings {
  static constexpr int unset = -2;

  std::atomic<int> max_dynamic_shared = unset;  // bytes
  std::atomic<int> carveout = unset;            // per cent, or -1
  std::atomic<CUfunc_cache> cache_config = CU_FUNC_CACHE_PREFER_NONE;
};

// A kernel and its settings. A library's kernel hands its own on to the functions made of it, as
// long as theirs are not set.
struct ConfiguredKernel {
  explicit ConfiguredKernel(const exec::Kernel& its_kernel) : kernel(its_kernel) {}

  int max_dynamic_shared() const noexcept;  // bytes
  int carveout() const noexcept;            // per cent, or -1
  unsigned max_threads() const noexcept;    // per block

  int attribute(CUfunction_attribute which) const;            // CUDA_ERROR_INVALID_VALUE
  void set_attribute(CUfunction_attribute which, int value);  // the same
  void set_cache_config(CUfunc_cache config);                 // the same
  void parameter_info(std::size_t index, std::size_t* offset,
                      std::size_t* bytes) const;  // the same

  const exec::Kernel& kernel;
  FunctionSettings settings;
  std::shared_ptr<const FunctionSettings> inherited;  // null: none
};

}  // namespace ctxbroker::software
