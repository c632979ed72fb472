// SPDX-License-Identifier: Apache-2.0
// Checks a launch of a plug-in's kernel and hands it to the driver.
#pragma once

#include <cstddef>
#include <utility>

#include "plugin/instance.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {

// Call it inside the instance's lease. `options` may be null. Records why it refuses a launch.
ctxb_status enqueue_launch(Instance& instance, Activation& activation, const ctxb_launch* launch,
                           const ctxb_launch_options* options);

// The driver's arguments for a launch with attributes.
struct LaunchConfig {
  CUlaunchAttribute attributes[4];
  CUlaunchConfig config;
};
// Checks everything of the launch but its arguments, and fills `config`. After a refusal it returns
// null and sets `status`.
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

// Answers a plug-in whose launch of that kernel the driver refused. Throws std::bad_alloc.
ctxb_status refused_by_driver(Instance& instance, const Kernel& kernel, CUresult status);

inline const DeviceLimits& limits_of(const Activation& activation) noexcept {
  return activation.lease->limits();
}

inline bool are_valid(const ctxb_launch* launch, const ctxb_launch_options* options) noexcept {
  return is_valid(launch, CTXB_BYTES_THROUGH(ctxb_launch, argument_sizes)) &&
         (options == nullptr ||
          is_valid(options, CTXB_BYTES_THROUGH(ctxb_launch_options, argument_offsets)));
}

// Calls `call(arguments, extra)` with the two as cuLaunchKernel takes them, one of which is null.
template <typename Call>
CUresult with_arguments(const Kernel& kernel, const ctxb_launch& launch,
                        const ctxb_launch_options* options, Call&& call) noexcept {
  // The driver takes pointers to non-const values and only reads them.
  if (options == nullptr || options->packed == nullptr) {
    return std::forward<Call>(call)(const_cast<void**>(launch.arguments), nullptr);
  }
  std::size_t bytes = kernel.arguments_known ? kernel.argument_bytes() : options->packed_bytes;
  void* packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(options->packed),
                    CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return std::forward<Call>(call)(nullptr, bytes != 0 ? packed : nullptr);
}

// Launches a checked kernel without attributes.
inline CUresult launch_plainly(const Activation& activation, const Kernel& kernel,
                               const ctxb_launch& launch,
                               const ctxb_launch_options* options) noexcept {
  return with_arguments(kernel, launch, options, [&](void** arguments, void** extra) {
    return activation.lease->table().launch_kernel(
        kernel.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
        launch.block[1], launch.block[2], launch.shared_bytes, activation.stream, arguments, extra);
  });
}

inline bool is_own_stream(const Activation& activation, void* stream) noexcept {
  return stream != nullptr && stream == activation.stream;
}
ctxb_status wrong_stream(Instance& instance, const char* function);

// `options` may be null. A plug-in calls it across the C boundary, through either extension.
ctxb_status launch_kernel(const ctxb_host* host, const ctxb_launch* launch,
                          const ctxb_launch_options* options) noexcept;

}  // namespace ctxbroker::detail
