// SPDX-License-Identifier: Apache-2.0
#include "module/kernel.hpp"

namespace ctxbroker::detail {
namespace {

// A driver that cannot tell is no failure; one that can and fails is.
CUresult read_arguments(const DriverTable& driver, Kernel& kernel) {
  if (driver.func_get_param_info == nullptr) return CUDA_SUCCESS;
  constexpr std::size_t most_arguments =
      4096;  // bytes of arguments that CUDA allows, one byte each
  for (std::size_t index = 0; index < most_arguments; ++index) {
    std::size_t offset = 0, bytes = 0;
    const CUresult status = driver.func_get_param_info(kernel.function, index, &offset, &bytes);
    if (status == CUDA_ERROR_INVALID_VALUE) {  // one past the last
      kernel.arguments_known = true;
      return CUDA_SUCCESS;
    }
    if (status == CUDA_ERROR_NOT_SUPPORTED) break;
    if (status != CUDA_SUCCESS) return status;
    kernel.arguments.push_back(
        {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
  }
  kernel.arguments.clear();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_attribute(const DriverTable& driver, const Kernel& kernel, CUfunction_attribute which,
                        unsigned int& value) {
  int got = 0;
  const CUresult status = driver.func_get_attribute(&got, which, kernel.function);
  value = got > 0 ? static_cast<unsigned int>(got) : 0;
  return status;
}

CUresult describe_kernel(const DriverTable& driver, Kernel& kernel) {
  CUresult status =
      read_attribute(driver, kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.block_threads);
  if (status != CUDA_SUCCESS) return status;
  status = read_attribute(driver, kernel, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                          kernel.static_shared_bytes);
  if (status != CUDA_SUCCESS) return status;
  status = read_attribute(driver, kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                          kernel.dynamic_shared_bytes);
  if (status != CUDA_SUCCESS) return status;
  return read_arguments(driver, kernel);
}

const ctxb_kernel* kernel_handle(std::uint64_t activation, std::size_t index) noexcept {
  const std::uint64_t number = activation << kernel_index_bits | index;
  return reinterpret_cast<const ctxb_kernel*>(static_cast<std::uintptr_t>(number));
}

}  // namespace ctxbroker::detail
