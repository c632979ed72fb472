#include "plugin/quick_launch.hpp"

#include <cstddef>

#include "context/guard.hpp"
#include "module/launch_check.hpp"
#include "observe/span.hpp"
#include "plugin/enqueue_launch.hpp"
#include "plugin/host_call.hpp"

namespace ctxbroker::detail {
namespace {

constexpr unsigned int working = in(Phase::activating) | in(Phase::processing);

// Whatever is asked for; says why not.
[[gnu::noinline]] ctxb_status launch_with_care(const ctxb_host* host, const ctxb_launch* launch,
                                               const ctxb_launch_options* options) noexcept {
  return host_call(host, "launch", working, [&](Instance& instance, Activation& activation) {
    return enqueue_launch(instance, activation, launch, options);
  });
}

[[gnu::cold, gnu::noinline]] ctxb_status say_refused(Instance& instance, const Kernel& kernel,
                                                     CUresult status) noexcept {
  const HostFrame frame;
  return contained([&] { return refused_by_driver(instance, kernel, status); });
}

// The kernel of a launch that can be handed to the driver as it is, from inside its lease. Null:
// somebody has to look more closely. That the thread's own frame says what is current is enough:
// until the driver has returned, nothing of the host's runs that would need a frame of its own.
const Kernel* ready_for_driver(const Instance& instance, const ctxb_launch* launch,
                               const ctxb_launch_options* options) noexcept {
  const Activation* const activation = instance.activation();
  if ((in(instance.phase()) & working) == 0 || activation == nullptr) return nullptr;
  if (!are_sound(launch, options) || observed()) return nullptr;
  const Lease& lease = *activation->lease;
  if (lease.lost() || !is_inside(lease.generation())) return nullptr;
  const std::ptrdiff_t index =
      kernel_index(launch->kernel, activation->serial, activation->kernels.size());
  if (index < 0 || !is_own_stream(*activation, launch->stream)) return nullptr;
  const Kernel& kernel = activation->kernels[static_cast<std::size_t>(index)];
  const bool ready =
      kernel.function != nullptr && surely_fits(kernel, limits_of(*activation), *launch, options);
  return ready ? &kernel : nullptr;
}

}  // namespace

ctxb_status launch_kernel(const ctxb_host* host, const ctxb_launch* launch,
                          const ctxb_launch_options* options) noexcept {
  Instance* const instance = instance_of(host);
  const Kernel* const kernel =
      instance == nullptr ? nullptr : ready_for_driver(*instance, launch, options);
  if (kernel == nullptr) return launch_with_care(host, launch, options);
  const Activation& activation = *instance->activation();
  const CUresult status = launch_plainly(activation, *kernel, *launch, options);
  if (status != CUDA_SUCCESS) return say_refused(*instance, *kernel, status);
  instance->count_launch();
  return CTXB_OK;
}

}  // namespace ctxbroker::detail
