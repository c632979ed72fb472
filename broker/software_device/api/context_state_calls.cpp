// SPDX-License-Identifier: Apache-2.0
// What can be asked of a context and set in it.
#include <algorithm>
#include <mutex>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

CUresult synchronise(CUcontext handle) {
  return initialised([&] {
    Context& context = handle == nullptr ? working_context() : living_context(handle);
    refuse_waiting(context);
    // A green context waits for itself alone, a primary for its green ones too.
    Executor& executor = context.device.executor;
    return wait_for(context, context.kind == ContextKind::green
                                 ? executor.pending_of_group(&context)
                                 : executor.pending_of_family(&context));
  });
}

CUresult get_device(CUdevice* device, CUcontext handle) {
  return initialised([&] {
    check_value(device != nullptr);
    Context& context = handle == nullptr ? current_context_or_corpse() : any_context(handle);
    *device = context.device.ordinal;
  });
}

bool known_limit(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return true;
    default:
      return false;
  }
}

std::atomic<std::size_t>& limit_of(Context& context, CUlimit limit) {
  check_value(limit >= 0 && limit < CU_LIMIT_MAX);
  check_that(known_limit(limit), CUDA_ERROR_UNSUPPORTED_LIMIT);
  return context.limits[static_cast<std::size_t>(limit)];
}

std::size_t in_steps(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// What an H100 with driver 580 makes of it. Stacks grow in steps of 16 bytes, up to nearly 512 KiB.
// The heap has at least 4 MiB; one that is larger than the device allows becomes as large as that.
std::size_t settled_limit(const Device& device, CUlimit limit, std::size_t value) {
  constexpr std::size_t stack_step = 16, largest_stack = (512 << 10) - 32;
  constexpr std::size_t heap_step = 64 << 10, smallest_heap = 4 << 20;
  if (limit == CU_LIMIT_STACK_SIZE) {
    check_value(value <= largest_stack);
    return in_steps(value, stack_step);
  }
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
    const std::size_t largest_heap = std::max(device.settings.memory / 4, smallest_heap);
    return in_steps(std::clamp(value, smallest_heap, largest_heap), heap_step);
  }
  return value;
}

bool valid_cache_config(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

}  // namespace

CTXB_EXPORT CUresult cuCtxSynchronize() {
  CTXB_COUNT_CALL();
  return synchronise(nullptr);
}
CTXB_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  CTXB_COUNT_CALL();
  return synchronise(context);
}

CTXB_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  CTXB_COUNT_CALL();
  return get_device(device, nullptr);
}
CTXB_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  CTXB_COUNT_CALL();
  return get_device(device, context);
}

CTXB_EXPORT CUresult cuCtxGetFlags(unsigned int* flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(flags != nullptr);
    const Context& context = current_context_or_corpse();
    // The primary maps host memory whatever it was asked, and so its green contexts do.
    *flags = context.flags | (context.kind != ContextKind::own ? unsigned(CU_CTX_MAP_HOST) : 0u);
  });
}

CTXB_EXPORT CUresult cuCtxSetFlags(unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(valid_context_flags(flags));
    Context& context = working_context();
    context.flags = flags;
    // A green context's are the primary's as well.
    if (context.kind != ContextKind::own) context.device.set_primary_flags(flags);
  });
}

CTXB_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(id != nullptr);
    *id = living_context(context).id;
  });
}

CTXB_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned int* version) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(version != nullptr);
    Context& found = context == nullptr ? current_context_or_corpse() : any_context(context);
    check_that(found.alive,
               context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT);
    *version = 3020;  // what NVIDIA's driver says of every context
  });
}

CTXB_EXPORT CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(value != nullptr);
    *value = limit_of(working_owner(), limit);
  });
}

CTXB_EXPORT CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    std::atomic<std::size_t>& current = limit_of(context, limit);
    std::lock_guard lock(context.heap_mutex);
    // As documented: too late once a kernel that uses the heap was launched.
    check_value(limit != CU_LIMIT_MALLOC_HEAP_SIZE || context.device_heap == nullptr);
    current = settled_limit(context.device, limit, value);
  });
}

CTXB_EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    check_value(config != nullptr);
    *config = context.cache_config;
  });
}

CTXB_EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(valid_cache_config(config));
    working_owner().cache_config = config;
  });
}

CTXB_EXPORT CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(config != nullptr);
    *config = working_context().shared_config;
  });
}

CTXB_EXPORT CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    working_context();  // the bank size is fixed, as on every device of today
  });
}

// The device has no level-2 cache whose lines could persist: all of them are normal.
CTXB_EXPORT CUresult cuCtxResetPersistingL2Cache() {
  CTXB_COUNT_CALL();
  return initialised([&] { working_context(); });
}

CTXB_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    if (least != nullptr) *least = device_limits::least_priority;
    if (greatest != nullptr) *greatest = device_limits::greatest_priority;
  });
}
