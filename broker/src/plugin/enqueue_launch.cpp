// SPDX-License-Identifier: Apache-2.0
#include "plugin/enqueue_launch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "context/guard.hpp"
#include "module/launch_check.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/host_call.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {
namespace {

// Once that its clusters may be larger than every such device takes.
CUresult allow_cluster(const DriverTable& driver, Kernel& kernel,
                       const ctxb_launch_options& options) noexcept {
  if (kernel.any_cluster || cluster_blocks(options) <= portable_cluster) return CUDA_SUCCESS;
  const CUresult status = driver.func_set_attribute(
      kernel.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  kernel.any_cluster = status == CUDA_SUCCESS;
  return status;
}

// Finds how many blocks of this launch fit on one multiprocessor at a time.
CUresult blocks_together(const DriverTable& driver, const Kernel& kernel, const ctxb_launch& launch,
                         unsigned int& blocks) noexcept {
  if (driver.active_blocks == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const unsigned int threads = launch.block[0] * launch.block[1] * launch.block[2];
  int found = 0;
  const CUresult status =
      driver.active_blocks(&found, kernel.function, static_cast<int>(threads), launch.shared_bytes);
  blocks = static_cast<unsigned int>(std::max(found, 0));
  return status;
}

ctxb_status refuse_launch(Instance& instance, const RefusalText& refusal) {
  if (refusal.never) {
    return refuse(instance, CTXB_ERROR_UNSUPPORTED, std::string("launch: ") + refusal.text);
  }
  return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "launch", refusal.text);
}

ctxb_status refused_by_driver(Instance& instance, const Kernel& kernel, CUresult status) {
  return answer(instance, ("launch of kernel \"" + kernel.name + "\"").c_str(), status);
}

// Prepares the driver for such a launch, and checks that the blocks of a cooperative one fit
// together.
ctxb_status open_up(Instance& instance, const Activation& activation, Kernel& kernel,
                    const ctxb_launch& launch, const ctxb_launch_options* options) {
  const DriverTable& driver = activation.lease->table();
  CUresult status = allow_shared(activation, kernel, launch.shared_bytes);
  if (status == CUDA_SUCCESS && options != nullptr && has_cluster(*options)) {
    status = allow_cluster(driver, kernel, *options);
  }
  if (status == CUDA_SUCCESS && options != nullptr &&
      (options->flags & CTXB_LAUNCH_COOPERATIVE) != 0) {
    unsigned int each = 0;
    status = blocks_together(driver, kernel, launch, each);
    RefusalText refusal;
    if (status == CUDA_SUCCESS &&
        !blocks_fit_together(kernel, launch, each, activation.lease->multiprocessors(), refusal)) {
      return refuse_launch(instance, refusal);
    }
  }
  return status == CUDA_SUCCESS ? CTXB_OK : refused_by_driver(instance, kernel, status);
}

void fill(LaunchConfig& to, const Activation& activation, const ctxb_launch& launch,
          const ctxb_launch_options* options) noexcept {
  to.config = {};
  to.config.gridDimX = launch.grid[0];
  to.config.gridDimY = launch.grid[1];
  to.config.gridDimZ = launch.grid[2];
  to.config.blockDimX = launch.block[0];
  to.config.blockDimY = launch.block[1];
  to.config.blockDimZ = launch.block[2];
  to.config.sharedMemBytes = launch.shared_bytes;
  to.config.hStream = activation.stream;
  to.config.attrs = to.attributes;
  if (options == nullptr) return;
  const auto add = [&to](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& attribute = to.attributes[to.config.numAttrs++];
    attribute = {};
    attribute.id = id;
    return attribute.value;
  };
  if (has_cluster(*options)) {
    auto& size = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
    size.x = options->cluster[0];
    size.y = options->cluster[1];
    size.z = options->cluster[2];
  }
  if ((options->flags & CTXB_LAUNCH_COOPERATIVE) != 0) {
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  }
  // Came with the devices that have clusters; for others it would mean nothing.
  if ((options->flags & CTXB_LAUNCH_PROGRAMMATIC) != 0 && limits_of(activation).clusters) {
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        .programmaticStreamSerializationAllowed = 1;
  }
  if ((options->flags & CTXB_LAUNCH_PRIORITY) != 0) {
    add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = options->priority;
  }
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

CUresult call_driver(const Activation& activation, const Kernel& kernel, const ctxb_launch& launch,
                     const ctxb_launch_options* options, const LaunchConfig& with) noexcept {
  const DriverTable& driver = activation.lease->table();
  if (with.config.numAttrs != 0 && driver.launch_kernel_ex == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return with_arguments(kernel, launch, options, [&](void** arguments, void** extra) {
    if (with.config.numAttrs != 0) {
      return driver.launch_kernel_ex(&with.config, kernel.function, arguments, extra);
    }
    return driver.launch_kernel(kernel.function, launch.grid[0], launch.grid[1], launch.grid[2],
                                launch.block[0], launch.block[1], launch.block[2],
                                launch.shared_bytes, activation.stream, arguments, extra);
  });
}

// Loads the kernel's module and finds its function.
[[gnu::cold, gnu::noinline]] ctxb_status bring_kernel(Instance& instance, Activation& activation,
                                                      Kernel& kernel, const char* function) {
  return with_modules(instance, function, [&] {
    const CUresult status = activation.modules->find_function(kernel);
    if (status != CUDA_ERROR_NOT_FOUND) return answer(instance, function, status);
    return refuse(instance, CTXB_ERROR_NOT_FOUND,
                  std::string(function) + ": " + activation.modules->no_such_kernel(kernel),
                  status);
  });
}

}  // namespace

// All that there is: the function may be another instance's too, which asked for more before.
CUresult allow_shared(const Activation& activation, Kernel& kernel, unsigned int bytes) noexcept {
  if (bytes <= kernel.dynamic_shared_bytes) return CUDA_SUCCESS;
  const unsigned int device = limits_of(activation).most_shared_bytes();
  const unsigned int most = device - std::min(device, kernel.static_shared_bytes);
  const CUresult status = activation.lease->table().func_set_attribute(
      kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(most));
  if (status == CUDA_SUCCESS) kernel.dynamic_shared_bytes = most;
  return status;
}

ctxb_status wrong_stream(Instance& instance, const char* function) {
  return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, function,
                       "the stream is not the one lent with the job or the activation");
}

ctxb_status ready_kernel(Instance& instance, Activation& activation, Kernel& kernel,
                         const char* function) {
  if (kernel.function != nullptr) return CTXB_OK;
  return bring_kernel(instance, activation, kernel, function);
}

Kernel* find_kernel(Instance& instance, Activation& activation, const ctxb_kernel* handle,
                    const char* function, ctxb_status& status) {
  const std::ptrdiff_t index = kernel_index(handle, activation.serial, activation.kernels.size());
  if (index >= 0) {
    Kernel& kernel = activation.kernels[static_cast<std::size_t>(index)];
    status = ready_kernel(instance, activation, kernel, function);
    return status == CTXB_OK ? &kernel : nullptr;
  }
  status = refuse_breach(instance, CTXB_ERROR_CONTEXT_LOST, function,
                         "the kernel does not come from get_kernel in this activation");
  return nullptr;
}

Kernel* prepare_launch(Instance& instance, Activation& activation, const ctxb_launch* launch,
                       const ctxb_launch_options* options, LaunchConfig& config,
                       ctxb_status& status) {
  if (!is_valid(launch, CTXB_BYTES_THROUGH(ctxb_launch, argument_sizes)) ||
      (options != nullptr &&
       !is_valid(options, CTXB_BYTES_THROUGH(ctxb_launch_options, argument_offsets)))) {
    status = refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "launch",
                           "the launch is null or its size is wrong");
    return nullptr;
  }
  Kernel* kernel = find_kernel(instance, activation, launch->kernel, "launch", status);
  if (kernel == nullptr) return nullptr;
  if (!is_own_stream(activation, launch->stream)) {
    status = wrong_stream(instance, "launch");
    return nullptr;
  }
  RefusalText refusal;
  if (!shape_fits(*kernel, limits_of(activation), *launch, options, refusal)) {
    status = refuse_launch(instance, refusal);
    return nullptr;
  }
  status = open_up(instance, activation, *kernel, *launch, options);
  if (status != CTXB_OK) return nullptr;
  fill(config, activation, *launch, options);
  return kernel;
}

ctxb_status launch_kernel(const ctxb_host* host, const ctxb_launch* launch,
                          const ctxb_launch_options* options) noexcept {
  constexpr unsigned int phases = in(Phase::activating) | in(Phase::processing);
  return host_call(host, "launch", phases, [&](Instance& instance, Activation& activation) {
    LaunchConfig config;
    ctxb_status refused = CTXB_OK;
    const Kernel* kernel = prepare_launch(instance, activation, launch, options, config, refused);
    if (kernel == nullptr) return refused;
    RefusalText refusal;
    if (!arguments_fit(*kernel, *launch, options, refusal)) return refuse_launch(instance, refusal);
    ScopedSpan span(SpanCategory::launch, "launch", kernel->name.c_str(), instance.tenant().id,
                    std::uint64_t{launch->grid[0]} * launch->grid[1] * launch->grid[2],
                    std::uint64_t{launch->block[0]} * launch->block[1] * launch->block[2]);
    const CUresult status = call_driver(activation, *kernel, *launch, options, config);
    span.set_status(status);
    if (status != CUDA_SUCCESS) return refused_by_driver(instance, *kernel, status);
    instance.count_launch(*kernel);
    return CTXB_OK;
  });
}

}  // namespace ctxbroker::detail
