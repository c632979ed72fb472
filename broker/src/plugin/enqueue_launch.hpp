// SPDX-License-Identifier: Apache-2.0
// Checks a launch of a plug-in's kernel and hands it to the driver.
#pragma once

#include "plugin/instance.hpp"

namespace ctxbroker::detail {

// The driver's arguments for a launch with attributes.
struct LaunchConfig {
  CUlaunchAttribute attributes[4];
  CUlaunchConfig config;
};
// Checks everything of the launch but its arguments, and fills `config`. `options` may be null.
// After a refusal it returns null and sets `status`.
Kernel* prepare_launch(Instance& instance, Activation& activation, const ctxb_launch* launch,
                       const ctxb_launch_options* options, LaunchConfig& config,
                       ctxb_status& status);

// Allows a kernel to use this much dynamic shared memory. CUDA wants that once above 48 KiB.
CUresult allow_shared(const Activation& activation, Kernel& kernel, unsigned int bytes) noexcept;

// Loads the kernel's module unless it is loaded, and finds the kernel's function. A kernel has no
// function before its module is first used, and after its module was unloaded to free memory.
ctxb_status ready_kernel(Instance& instance, Activation& activation, Kernel& kernel,
                         const char* function);

// Returns the kernel behind a handle of this activation. After a refusal it returns null and sets
// `status`.
Kernel* find_kernel(Instance& instance, Activation& activation, const ctxb_kernel* handle,
                    const char* function, ctxb_status& status);

inline const DeviceLimits& limits_of(const Activation& activation) noexcept {
  return activation.lease->limits();
}

inline bool is_own_stream(const Activation& activation, void* stream) noexcept {
  return stream != nullptr && stream == activation.stream;
}
ctxb_status wrong_stream(Instance& instance, const char* function);

// `options` may be null. A plug-in calls it across the C boundary, through either extension.
ctxb_status launch_kernel(const ctxb_host* host, const ctxb_launch* launch,
                          const ctxb_launch_options* options) noexcept;

}  // namespace ctxbroker::detail
