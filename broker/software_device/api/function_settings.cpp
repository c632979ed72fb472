// SPDX-License-Identifier: Apache-2.0
#include "api/function_settings.hpp"

#include <algorithm>

#include "api/device.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

int own_or_inherited(const std::atomic<int>& own, const std::atomic<int>* inherited,
                     int otherwise) noexcept {
  if (int value = own; value != FunctionSettings::unset) return value;
  if (inherited != nullptr)
    if (int value = *inherited; value != FunctionSettings::unset) return value;
  return otherwise;
}

}  // namespace

int ConfiguredKernel::max_dynamic_shared() const noexcept {
  constexpr unsigned most = device_limits::shared_per_block;
  unsigned taken = std::min(kernel.static_shared_bytes, most);
  return own_or_inherited(settings.max_dynamic_shared,
                          inherited ? &inherited->max_dynamic_shared : nullptr,
                          static_cast<int>(most - taken));
}

int ConfiguredKernel::carveout() const noexcept {
  return own_or_inherited(settings.carveout, inherited ? &inherited->carveout : nullptr, -1);
}

unsigned ConfiguredKernel::max_threads() const noexcept {
  return std::min(kernel.max_threads, device_limits::max_threads);
}

int ConfiguredKernel::attribute(CUfunction_attribute which) const {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(max_threads());
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return static_cast<int>(kernel.constant_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(kernel.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return static_cast<int>(kernel.target);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return compute_capability();
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return max_dynamic_shared();
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return carveout();
    default:
      check_value(which >= 0 && which < CU_FUNC_ATTRIBUTE_MAX);
      return 0;  // no cache mode, no clusters
  }
}

void ConfiguredKernel::set_attribute(CUfunction_attribute which, int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    check_value(value >= 0 && static_cast<unsigned>(value) + kernel.static_shared_bytes <=
                                  device_limits::shared_per_block_optin);
    settings.max_dynamic_shared = value;
  } else {
    check_value(which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 &&
                value <= 100);
    settings.carveout = value;  // shared memory and cache are not one memory here: only noted
  }
}

void ConfiguredKernel::set_cache_config(CUfunc_cache config) {
  check_value(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
  settings.cache_config = config;
}

void ConfiguredKernel::parameter_info(std::size_t index, std::size_t* offset,
                                      std::size_t* bytes) const {
  check_value(offset != nullptr && index < kernel.parameters.size());
  *offset = kernel.parameters[index].offset;
  if (bytes != nullptr) *bytes = kernel.parameters[index].size;
}

}  // namespace ctxbroker::software
