// SPDX-License-Identifier: Apache-2.0
// The host's side of CTXB_EXT_GPU. None of these functions throws: a plug-in calls them across the
// C boundary.
#include <cstring>
#include <string>

#include "context/realtime_session.hpp"
#include "context/timed_wait.hpp"
#include "module/kernel.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/enqueue_launch.hpp"
#include "plugin/host_call.hpp"

namespace ctxbroker::detail {
namespace {

constexpr unsigned int setting_up = in(Phase::activating);
constexpr unsigned int working = in(Phase::activating) | in(Phase::processing);

std::string quoted(const char* text) {
  return text == nullptr ? std::string("null") : "\"" + std::string(text) + "\"";
}

ctxb_status no_such_module(Instance& instance, const char* function, const char* module) {
  return refuse_breach(
      instance, CTXB_ERROR_INVALID_ARGUMENT, function,
      module == nullptr ? std::string("module may be null only if the plug-in's descriptor lists "
                                      "exactly one module")
                        : "there is no module " + quoted(module));
}

ctxb_status look_up_kernel(Instance& instance, Activation& activation, const char* module,
                           const char* name, const ctxb_kernel** kernel) {
  ModuleUse* const use = activation.modules->find(module);
  if (use == nullptr) return no_such_module(instance, "get_kernel", module);
  if (activation.kernels.size() >= most_kernels) {
    return refuse_breach(instance, CTXB_ERROR_UNSUPPORTED, "get_kernel", "too many kernels");
  }
  Kernel found;
  found.module = use->name();
  found.name = name;
  if (!activation.modules->can_wait(*use, name)) {
    const ctxb_status status = ready_kernel(instance, activation, found, "get_kernel");
    if (status != CTXB_OK) return status;
  }
  activation.kernels.push_back(std::move(found));
  *kernel = kernel_handle(activation.serial, activation.kernels.size() - 1);
  return CTXB_OK;
}

ctxb_status get_kernel(const ctxb_host* host, const char* module, const char* name,
                       const ctxb_kernel** kernel) {
  return host_call(host, "get_kernel", setting_up, [&](Instance& instance, Activation& activation) {
    if (name == nullptr || kernel == nullptr) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "get_kernel",
                           "name or kernel is null");
    }
    *kernel = nullptr;
    return with_modules(instance, "get_kernel",
                        [&] { return look_up_kernel(instance, activation, module, name, kernel); });
  });
}

ctxb_status look_up_global(Instance& instance, Activation& activation, ModuleUse& use,
                           const char* name, std::uint64_t* address, std::uint64_t* bytes) {
  CUdeviceptr found = 0;
  std::size_t size = 0;
  const CUresult status = activation.lease->table().module_get_global(
      &found, &size, activation.modules->load_module(use), name);
  if (status == CUDA_ERROR_NOT_FOUND) {
    return refuse(instance, CTXB_ERROR_NOT_FOUND,
                  "get_global: module \"" + use.name() + "\" has no variable " + quoted(name),
                  status);
  }
  if (status != CUDA_SUCCESS) return answer(instance, "get_global", status);
  use.address_given = true;
  *address = found;
  *bytes = size;
  return CTXB_OK;
}

ctxb_status get_global(const ctxb_host* host, const char* module, const char* name,
                       std::uint64_t* address, std::uint64_t* bytes) {
  return host_call(host, "get_global", setting_up, [&](Instance& instance, Activation& activation) {
    if (name == nullptr || address == nullptr || bytes == nullptr) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "get_global",
                           "name, address or bytes is null");
    }
    *address = *bytes = 0;
    ModuleUse* const use = activation.modules->find(module);
    if (use == nullptr) return no_such_module(instance, "get_global", module);
    return with_modules(instance, "get_global", [&] {
      return look_up_global(instance, activation, *use, name, address, bytes);
    });
  });
}

ctxb_status allocate(const ctxb_host* host, std::uint64_t bytes, std::uint64_t* address) {
  return host_call(host, "allocate", setting_up, [&](Instance& instance, Activation&) {
    if (address == nullptr || bytes == 0) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "allocate",
                           "address is null or bytes is 0");
    }
    *address = 0;
    Budget& budget = instance.budget();
    if (!budget.take(bytes)) {
      return refuse(instance, CTXB_ERROR_OUT_OF_DEVICE_MEMORY,
                    "allocate: " + std::to_string(bytes) + " bytes do not fit into the budget of " +
                        std::to_string(budget.limit()) + " bytes, of which " +
                        std::to_string(budget.held()) + " are taken");
    }
    const auto& lease = instance.lease();
    const RealtimeWork work(instance.tenant(), realtime_call("allocate"), lease->kind());
    CUdeviceptr got = 0;
    std::shared_ptr<MemoryStore> store;
    const CUresult status = take_device_memory(*lease, bytes, &got, &store);
    if (status != CUDA_SUCCESS) {
      budget.give(bytes);
      return answer(instance, ("allocate of " + std::to_string(bytes) + " bytes").c_str(), status);
    }
    budget.raise_peak();
    try {
      DeviceMemory memory(lease, got, bytes, std::move(store));
      *address = record(std::move(memory), bytes, instance.holder(), nullptr);
    } catch (const std::bad_alloc&) {
      budget.give(bytes);
      throw;
    }
    return CTXB_OK;
  });
}

ctxb_status release(const ctxb_host* host, std::uint64_t address) {
  constexpr unsigned int phases = in(Phase::activating) | in(Phase::deactivating);
  return host_call(host, "release", phases, [&](Instance& instance, Activation&) {
    if (address == 0) return ctxb_status{CTXB_OK};
    const RealtimeWork work(instance.tenant(), realtime_call("release"), instance.lease()->kind());
    const auto released = detail::release(instance.holder(), Kind::memory, address);
    if (!released) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "release",
                           "address " + std::to_string(address) + " is not this instance's");
    }
    if (!released->is_still_held) instance.budget().give(released->bytes);
    return answer(instance, "release", released->status);
  });
}

ctxb_status launch(const ctxb_host* host, const ctxb_launch* launch) {
  return launch_kernel(host, launch, nullptr);
}

// In activate there is no limit and no staging: the copy is waited for, so that the source is free.
ctxb_status upload_now(Instance& instance, Activation& activation, std::uint64_t destination,
                       const void* source, std::uint64_t bytes) {
  const DriverTable& driver = activation.lease->table();
  const ScopedSpan span(SpanCategory::copy, "upload and wait", nullptr, instance.tenant().id,
                        bytes);
  CUresult status = driver.memcpy_htod_async(destination, source, bytes, activation.stream);
  if (status == CUDA_SUCCESS)
    status = wait_for(driver, activation.stream, instance.broker().job_timeout());
  return answer(instance, "upload", status);
}

ctxb_status upload_staged(Instance& instance, Activation& activation, std::uint64_t destination,
                          const void* source, std::uint64_t bytes) {
  if (bytes > CTXB_UPLOAD_MAX - activation.staged) {
    return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "upload",
                         std::to_string(bytes) + " bytes after " +
                             std::to_string(activation.staged) + "; one process may upload " +
                             std::to_string(CTXB_UPLOAD_MAX) + " in all");
  }
  const ScopedSpan span(SpanCategory::copy, "upload", nullptr, instance.tenant().id, bytes);
  std::byte* const staged = activation.staging_now + activation.staged;
  std::memcpy(staged, source, bytes);
  activation.staged += bytes;
  return answer(
      instance, "upload",
      activation.lease->table().memcpy_htod_async(destination, staged, bytes, activation.stream));
}

ctxb_status upload(const ctxb_host* host, void* stream, std::uint64_t destination,
                   const void* source, std::uint64_t bytes) {
  return host_call(host, "upload", working, [&](Instance& instance, Activation& activation) {
    if (!is_own_stream(activation, stream)) return wrong_stream(instance, "upload");
    if (bytes == 0) return ctxb_status{CTXB_OK};
    if (source == nullptr) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "upload", "the source is null");
    }
    return instance.phase() == Phase::activating
               ? upload_now(instance, activation, destination, source, bytes)
               : upload_staged(instance, activation, destination, source, bytes);
  });
}

ctxb_status clear(const ctxb_host* host, void* stream, std::uint64_t destination,
                  std::uint64_t bytes) {
  return host_call(host, "clear", working, [&](Instance& instance, Activation& activation) {
    if (!is_own_stream(activation, stream)) return wrong_stream(instance, "clear");
    if (bytes % 4 != 0 || destination % 4 != 0) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "clear",
                           "destination and bytes must be multiples of 4");
    }
    if (bytes == 0) return ctxb_status{CTXB_OK};
    const ScopedSpan span(SpanCategory::copy, "clear", nullptr, instance.tenant().id, bytes);
    return answer(
        instance, "clear",
        activation.lease->table().memset_d32_async(destination, 0, bytes / 4, activation.stream));
  });
}

ctxb_status copy(const ctxb_host* host, void* stream, std::uint64_t destination,
                 std::uint64_t source, std::uint64_t bytes) {
  return host_call(host, "copy", working, [&](Instance& instance, Activation& activation) {
    if (!is_own_stream(activation, stream)) return wrong_stream(instance, "copy");
    if (bytes == 0) return ctxb_status{CTXB_OK};
    const std::uint64_t apart = destination > source ? destination - source : source - destination;
    if (apart < bytes) {
      return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "copy", "the two places overlap");
    }
    const ScopedSpan span(SpanCategory::copy, "copy", nullptr, instance.tenant().id, bytes);
    return answer(
        instance, "copy",
        activation.lease->table().memcpy_dtod_async(destination, source, bytes, activation.stream));
  });
}

}  // namespace

const ctxb_gpu_extension gpu_extension{sizeof(ctxb_gpu_extension),
                                       get_kernel,
                                       get_global,
                                       allocate,
                                       release,
                                       launch,
                                       upload,
                                       clear,
                                       copy};

}  // namespace ctxbroker::detail
