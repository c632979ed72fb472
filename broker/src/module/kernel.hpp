// A kernel of a loaded module with what the driver says about it, and the check of a launch
// against that. Handles for plug-ins are numbers, never addresses: a dead or invented one is
// recognised without being followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/plugin.h"
#include "driver/driver.hpp"

namespace ctxbroker::detail {

struct Kernel {
  std::string module, name;
  CUfunction function = nullptr;
  unsigned int block_threads = 0;         // most threads of one block, for this kernel
  unsigned int static_shared_bytes = 0;   // per block
  unsigned int dynamic_shared_bytes = 0;  // most that a launch may ask for now
  bool arguments_known = false;           // the driver told argument_bytes
  std::vector<std::uint32_t> argument_bytes;
};

// Looks at a function. Returns the driver's status when it refuses; the kernel is then of no use.
CUresult describe_kernel(const DriverTable& driver, Kernel& kernel);

// The handle of kernel `index` in the activation with this serial number.
const ctxb_kernel* kernel_handle(std::uint64_t activation, std::size_t index) noexcept;

// Its index, or -1 when the handle is none of this activation's `count`.
std::ptrdiff_t kernel_index(const ctxb_kernel* handle, std::uint64_t activation,
                            std::size_t count) noexcept;

inline constexpr std::size_t most_kernels = 0x10000;  // of one activation

// Room for a refusal's text without allocation.
struct RefusalText {
  char text[256] = {};
};

// True when the launch fits kernel and device; otherwise `refusal` names kernel, limit and value.
bool launch_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept;

}  // namespace ctxbroker::detail
