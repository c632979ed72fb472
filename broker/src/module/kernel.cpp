#include "module/kernel.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace ctxbroker::detail {
namespace {

constexpr unsigned int index_bits = 16;
static_assert(most_kernels == std::size_t{1} << index_bits);

constexpr char axis_names[] = "xyz";

CUresult read(const DriverTable& driver, const Kernel& kernel, CUfunction_attribute which,
              unsigned int& value) {
  int got = 0;
  const CUresult status = driver.func_get_attribute(&got, which, kernel.function);
  value = got > 0 ? static_cast<unsigned int>(got) : 0;
  return status;
}

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
    kernel.argument_bytes.push_back(static_cast<std::uint32_t>(bytes));
  }
  kernel.argument_bytes.clear();
  return CUDA_SUCCESS;
}

[[gnu::format(printf, 2, 3)]] bool refuse(RefusalText& refusal, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(refusal.text, sizeof refusal.text, format, arguments);
  va_end(arguments);
  return false;
}

bool extents_fit(const Kernel& kernel, const char* what, const std::uint32_t (&extent)[3],
                 const unsigned int (&limit)[3], RefusalText& refusal) noexcept {
  for (int axis = 0; axis < 3; ++axis) {
    if (extent[axis] == 0 || extent[axis] > limit[axis]) {
      return refuse(refusal, "kernel \"%s\": %s.%c is %u; it must be 1 to %u", kernel.name.c_str(),
                    what, axis_names[axis], extent[axis], limit[axis]);
    }
  }
  return true;
}

bool arguments_fit(const Kernel& kernel, const ctxb_launch& launch, RefusalText& refusal) noexcept {
  const char* name = kernel.name.c_str();
  if (kernel.arguments_known && launch.argument_count != kernel.argument_bytes.size()) {
    return refuse(refusal, "kernel \"%s\" takes %zu arguments; the launch gives %u", name,
                  kernel.argument_bytes.size(), launch.argument_count);
  }
  if (launch.argument_count == 0) return true;
  if (launch.arguments == nullptr || launch.argument_sizes == nullptr) {
    return refuse(refusal, "kernel \"%s\": arguments or argument_sizes is null", name);
  }
  for (std::uint32_t index = 0; index < launch.argument_count; ++index) {
    if (launch.arguments[index] == nullptr) {
      return refuse(refusal, "kernel \"%s\": argument %u is null", name, index);
    }
    if (kernel.arguments_known && launch.argument_sizes[index] != kernel.argument_bytes[index]) {
      return refuse(refusal, "kernel \"%s\": argument %u has %u bytes; the kernel takes %u", name,
                    index, launch.argument_sizes[index], kernel.argument_bytes[index]);
    }
  }
  return true;
}

bool threads_fit(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept {
  const std::uint64_t threads =
      std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];  // each is below 2^21
  const unsigned int most = std::min(kernel.block_threads, limits.block_threads);
  if (threads <= most) return true;
  return refuse(refusal, "kernel \"%s\": a block of %u x %u x %u has %llu threads; at most %u fit",
                kernel.name.c_str(), launch.block[0], launch.block[1], launch.block[2],
                static_cast<unsigned long long>(threads), most);
}

bool shared_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept {
  const std::uint64_t bytes = std::uint64_t{launch.shared_bytes} + kernel.static_shared_bytes;
  const unsigned int most = std::max(limits.shared_bytes, limits.shared_optin_bytes);
  if (bytes <= most) return true;
  return refuse(refusal,
                "kernel \"%s\": %u bytes of dynamic and %u of static shared memory; at most %u fit",
                kernel.name.c_str(), launch.shared_bytes, kernel.static_shared_bytes, most);
}

}  // namespace

CUresult describe_kernel(const DriverTable& driver, Kernel& kernel) {
  CUresult status =
      read(driver, kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.block_threads);
  if (status != CUDA_SUCCESS) return status;
  status = read(driver, kernel, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel.static_shared_bytes);
  if (status != CUDA_SUCCESS) return status;
  status = read(driver, kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                kernel.dynamic_shared_bytes);
  if (status != CUDA_SUCCESS) return status;
  status = read_arguments(driver, kernel);
  if (status != CUDA_SUCCESS) return status;
  // A driver that loads lazily would do it at the first launch, and wait there for whatever runs.
  status = driver.func_load == nullptr ? CUDA_SUCCESS : driver.func_load(kernel.function);
  return status == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : status;
}

const ctxb_kernel* kernel_handle(std::uint64_t activation, std::size_t index) noexcept {
  const std::uint64_t number = activation << index_bits | index;
  return reinterpret_cast<const ctxb_kernel*>(static_cast<std::uintptr_t>(number));
}

std::ptrdiff_t kernel_index(const ctxb_kernel* handle, std::uint64_t activation,
                            std::size_t count) noexcept {
  const std::uint64_t number = reinterpret_cast<std::uintptr_t>(handle);
  const std::uint64_t index = number & (most_kernels - 1);
  if (number >> index_bits != activation || index >= count) return -1;
  return static_cast<std::ptrdiff_t>(index);
}

bool launch_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept {
  return extents_fit(kernel, "grid", launch.grid, limits.grid, refusal) &&
         extents_fit(kernel, "block", launch.block, limits.block, refusal) &&
         threads_fit(kernel, limits, launch, refusal) &&
         shared_fits(kernel, limits, launch, refusal) && arguments_fit(kernel, launch, refusal);
}

}  // namespace ctxbroker::detail
