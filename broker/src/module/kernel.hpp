// SPDX-License-Identifier: Apache-2.0
// A kernel of a loaded module with its properties. Plug-ins get numbers as handles instead of
// addresses, so that a dead or invented handle is recognised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/plugin.h"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

struct KernelArgument {
  std::uint32_t offset = 0, bytes = 0;  // in the packed form
};

struct Kernel {
  std::string module, name;
  CUfunction function = nullptr;
  unsigned int block_threads = 0;         // most threads of one block, for this kernel
  unsigned int static_shared_bytes = 0;   // per block
  unsigned int dynamic_shared_bytes = 0;  // most that a launch may ask for now
  bool any_cluster = false;               // also one that is not portable
  bool arguments_known = false;           // the driver told arguments
  std::vector<KernelArgument> arguments;
  // The number of its last launch among the instance's. By the thread that launches.
  mutable std::uint64_t last_launch = 0;

  // Of the packed form.
  std::uint32_t argument_bytes() const noexcept {
    return arguments.empty() ? 0 : arguments.back().offset + arguments.back().bytes;
  }
};

// Reads the properties of the kernel's function. Returns the driver's error; then the kernel is of
// no use. Does not load its code.
CUresult describe_kernel(const DriverTable& driver, Kernel& kernel);

// Reads one attribute of the function. A negative value becomes 0.
CUresult read_attribute(const DriverTable& driver, const Kernel& kernel, CUfunction_attribute which,
                        unsigned int& value);

inline constexpr unsigned int kernel_index_bits = 16;
inline constexpr std::size_t most_kernels = std::size_t{1}
                                            << kernel_index_bits;  // of an activation

// Returns the handle of kernel `index` in the activation with this serial number.
const ctxb_kernel* kernel_handle(std::uint64_t activation, std::size_t index) noexcept;

// Returns the kernel's index, or -1 when the handle belongs to none of the activation's `count`
// kernels.
inline std::ptrdiff_t kernel_index(const ctxb_kernel* handle, std::uint64_t activation,
                                   std::size_t count) noexcept {
  const std::uint64_t number = reinterpret_cast<std::uintptr_t>(handle);
  const std::uint64_t index = number & (most_kernels - 1);
  if (number >> kernel_index_bits != activation || index >= count) return -1;
  return static_cast<std::ptrdiff_t>(index);
}

}  // namespace ctxbroker::detail
