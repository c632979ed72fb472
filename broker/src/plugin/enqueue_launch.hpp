// A launch of a plug-in's kernel: checked, then handed to the driver.
#pragma once

#include "plugin/instance.hpp"

namespace ctxbroker::detail {

// Inside the instance's lease. `options` may be null. Notes why it refused.
ctxb_status enqueue_launch(Instance& instance, Activation& activation, const ctxb_launch* launch,
                           const ctxb_launch_options* options);

// What a launch with attributes hands to the driver.
struct LaunchConfig {
  CUlaunchAttribute attributes[4];
  CUlaunchConfig config;
};
// Checks kernel, stream and everything of the launch but its arguments; fills `config`. Null after
// a refusal, with its `status`.
Kernel* prepare_launch(Instance& instance, Activation& activation, const ctxb_launch* launch,
                       const ctxb_launch_options* options, LaunchConfig& config,
                       ctxb_status& status);

// Above 48 KiB a kernel must be told once that it may use more dynamic shared memory.
CUresult allow_shared(const Activation& activation, Kernel& kernel, unsigned int bytes) noexcept;

// The kernel behind a handle of this activation. Null after a refusal, with its `status`.
Kernel* find_kernel(Instance& instance, Activation& activation, const ctxb_kernel* handle,
                    const char* function, ctxb_status& status);

inline bool is_own_stream(const Activation& activation, void* stream) noexcept {
  return stream != nullptr && stream == activation.stream.get();
}
ctxb_status wrong_stream(Instance& instance, const char* function);

}  // namespace ctxbroker::detail
