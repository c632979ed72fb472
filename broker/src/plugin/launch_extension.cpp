// SPDX-License-Identifier: Apache-2.0
// The host's side of CTXB_EXT_LAUNCH. None of these functions throws: a plug-in calls them across
// the C boundary.
#include <algorithm>
#include <cstring>
#include <utility>

#include "module/launch_check.hpp"
#include "module/use_gate.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/enqueue_launch.hpp"
#include "plugin/host_call.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {
namespace {

constexpr unsigned int while_active =
    in(Phase::activating) | in(Phase::processing) | in(Phase::active);

// Runs work(instance, activation, kernel) for a kernel of this activation.
template <typename Work>
ctxb_status kernel_call(const ctxb_host* host, const char* function, const ctxb_kernel* handle,
                        Work&& work) noexcept {
  return host_call(
      host, function, while_active, [&](Instance& instance, Activation& activation) -> ctxb_status {
        // A call outside of process, too: idle modules stay while it looks at one.
        const UseScope use(instance.modules()->gate());
        ctxb_status status = CTXB_OK;
        Kernel* kernel = find_kernel(instance, activation, handle, function, status);
        return kernel == nullptr ? status : std::forward<Work>(work)(instance, activation, *kernel);
      });
}

ctxb_status null_argument(Instance& instance, const char* function, const char* what) {
  return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, function,
                       std::string(what) + " is null or its size is wrong");
}

CUresult describe(const Activation& activation, const Kernel& kernel, ctxb_kernel_info& info) {
  const DriverTable& driver = activation.lease->table();
  const std::pair<CUfunction_attribute, std::uint32_t*> numbers[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &info.registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &info.local_bytes},
      {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &info.constant_bytes},
      {CU_FUNC_ATTRIBUTE_PTX_VERSION, &info.ptx_version},
      {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &info.binary_version},
  };
  for (const auto& [which, number] : numbers) {
    const CUresult status = read_attribute(driver, kernel, which, *number);
    if (status != CUDA_SUCCESS) return status;
  }
  const unsigned int shared = limits_of(activation).most_shared_bytes();
  info.argument_count = kernel.arguments_known ? static_cast<std::uint32_t>(kernel.arguments.size())
                                               : CTXB_ARGUMENTS_UNKNOWN;
  info.argument_bytes = kernel.argument_bytes();
  info.block_threads = kernel.block_threads;
  info.static_shared_bytes = kernel.static_shared_bytes;
  info.dynamic_shared_bytes = shared - std::min(shared, kernel.static_shared_bytes);
  return CUDA_SUCCESS;
}

ctxb_status get_kernel_info(const ctxb_host* host, const ctxb_kernel* handle,
                            ctxb_kernel_info* info) {
  constexpr const char* name = "get_kernel_info";
  return kernel_call(host, name, handle,
                     [&](Instance& instance, const Activation& activation, const Kernel& kernel) {
                       if (!is_valid(info, CTXB_BYTES_THROUGH(ctxb_kernel_info, binary_version))) {
                         return null_argument(instance, name, "info");
                       }
                       ctxb_kernel_info filled{};
                       const CUresult status = describe(activation, kernel, filled);
                       if (status == CUDA_SUCCESS) hand_over(filled, info);
                       return answer(instance, name, status);
                     });
}

ctxb_status get_argument(const ctxb_host* host, const ctxb_kernel* handle, std::uint32_t index,
                         ctxb_kernel_argument* argument) {
  constexpr const char* name = "get_argument";
  return kernel_call(
      host, name, handle,
      [&](Instance& instance, const Activation&, const Kernel& kernel) -> ctxb_status {
        if (!is_valid(argument, CTXB_BYTES_THROUGH(ctxb_kernel_argument, bytes))) {
          return null_argument(instance, name, "argument");
        }
        if (!kernel.arguments_known) {
          return refuse(instance, CTXB_ERROR_UNAVAILABLE,
                        std::string(name) + ": this driver does not tell a kernel's arguments");
        }
        if (index >= kernel.arguments.size()) {
          return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, name,
                               "kernel \"" + kernel.name + "\" takes " +
                                   std::to_string(kernel.arguments.size()) +
                                   " arguments; there is no " + std::to_string(index));
        }
        const KernelArgument& found = kernel.arguments[index];
        hand_over(ctxb_kernel_argument{0, found.offset, found.bytes}, argument);
        return CTXB_OK;
      });
}

ctxb_status not_offered(Instance& instance, const char* function) {
  return refuse(instance, CTXB_ERROR_UNSUPPORTED,
                std::string(function) + ": this driver cannot tell");
}

ctxb_status get_best_block(const ctxb_host* host, const ctxb_kernel* handle,
                           std::uint32_t shared_bytes, std::uint32_t most_threads,
                           std::uint32_t* block_threads, std::uint32_t* grid_blocks) {
  constexpr const char* name = "get_best_block";
  return kernel_call(
      host, name, handle,
      [&](Instance& instance, const Activation& activation, Kernel& kernel) -> ctxb_status {
        if (block_threads == nullptr || grid_blocks == nullptr) {
          return null_argument(instance, name, "block_threads or grid_blocks");
        }
        const Lease& lease = *activation.lease;
        const DriverTable& driver = lease.table();
        if (driver.best_block_size == nullptr || driver.active_blocks == nullptr) {
          return not_offered(instance, name);
        }
        int blocks = 0, threads = 0, each = 0;
        CUresult status = allow_shared(activation, kernel, shared_bytes);
        if (status == CUDA_SUCCESS) {
          status = driver.best_block_size(&blocks, &threads, kernel.function, nullptr, shared_bytes,
                                          static_cast<int>(most_threads));
        }
        // The driver's number of blocks is the whole device's; a partition has less.
        if (status == CUDA_SUCCESS) {
          status = driver.active_blocks(&each, kernel.function, threads, shared_bytes);
        }
        if (status != CUDA_SUCCESS) return answer(instance, name, status);
        *block_threads = static_cast<std::uint32_t>(threads);
        *grid_blocks = static_cast<std::uint32_t>(each) * lease.multiprocessors();
        return CTXB_OK;
      });
}

ctxb_status get_active_blocks(const ctxb_host* host, const ctxb_kernel* handle,
                              std::uint32_t block_threads, std::uint32_t shared_bytes,
                              std::uint32_t* blocks) {
  constexpr const char* name = "get_active_blocks";
  return kernel_call(
      host, name, handle,
      [&](Instance& instance, const Activation& activation, Kernel& kernel) -> ctxb_status {
        if (blocks == nullptr) return null_argument(instance, name, "blocks");
        const DriverTable& driver = activation.lease->table();
        if (driver.active_blocks == nullptr) return not_offered(instance, name);
        if (block_threads == 0 || block_threads > kernel.block_threads) {
          return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, name,
                               "kernel \"" + kernel.name + "\": block_threads is " +
                                   std::to_string(block_threads) + "; it must be 1 to " +
                                   std::to_string(kernel.block_threads));
        }
        int found = 0;
        CUresult status = allow_shared(activation, kernel, shared_bytes);
        if (status == CUDA_SUCCESS) {
          status = driver.active_blocks(&found, kernel.function, static_cast<int>(block_threads),
                                        shared_bytes);
        }
        *blocks = static_cast<std::uint32_t>(std::max(found, 0));
        return answer(instance, name, status);
      });
}

ctxb_status get_active_clusters(const ctxb_host* host, const ctxb_launch* launch,
                                const ctxb_launch_options* options, std::uint32_t* clusters) {
  constexpr const char* name = "get_active_clusters";
  return host_call(
      host, name, while_active, [&](Instance& instance, Activation& activation) -> ctxb_status {
        if (clusters == nullptr) return null_argument(instance, name, "clusters");
        const DriverTable& driver = activation.lease->table();
        LaunchConfig config;
        ctxb_status status = CTXB_OK;
        const Kernel* kernel =
            prepare_launch(instance, activation, launch, options, config, status);
        if (kernel == nullptr) return status;
        if (options == nullptr || !has_cluster(*options)) {
          return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, name,
                               "the launch has no clusters");
        }
        if (driver.active_clusters == nullptr) return not_offered(instance, name);
        int found = 0;
        const CUresult asked = driver.active_clusters(&found, kernel->function, &config.config);
        *clusters = static_cast<std::uint32_t>(std::max(found, 0));
        return answer(instance, name, asked);
      });
}

}  // namespace

const ctxb_launch_extension launch_extension{sizeof(ctxb_launch_extension),
                                             launch_kernel,
                                             get_kernel_info,
                                             get_argument,
                                             get_best_block,
                                             get_active_blocks,
                                             get_active_clusters};

}  // namespace ctxbroker::detail
