// SPDX-License-Identifier: Apache-2.0
// Making, ending and making current of contexts.
#include <mutex>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
  return working([&] {
    Device& found = find_device(device);
    check_value(context != nullptr && valid_context_flags(flags));
    const std::lock_guard lock(found.making_or_ending);
    Context& made = Process::instance().contexts.create(found, flags);
    context_stack::push(made.handle);
    *context = made.handle;
  });
}

// Ends a private context and takes it off the caller's stack, if it is on top there. NVIDIA's
// driver ends one only when all kernels on the device have ended.
void end(Context& context) {
  check_that(context.kind == ContextKind::own, CUDA_ERROR_INVALID_CONTEXT);
  context.check_alive();
  {
    Device& device = context.device;
    const std::lock_guard lock(device.making_or_ending);
    device.executor.wait(device.executor.running_kernels_of_family(nullptr));
    check_that(destroy_context(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  if (context_stack::top() == context.handle) context_stack::pop(nullptr);
}

CUresult destroy(CUcontext context) {
  return initialised([&] {
    check_value(context != nullptr);
    end(any_context(context));
  });
}

CUresult push(CUcontext context) {
  return initialised([&] {
    check_value(context != nullptr);
    any_context(context);  // a dead one may be pushed; its use fails
    context_stack::push(context);
  });
}

CUresult pop(CUcontext* context) {
  return initialised([&] { check_that(context_stack::pop(context), CUDA_ERROR_INVALID_CONTEXT); });
}

void check_no_affinity(const CUexecAffinityParam* parameters, int count) {
  check_value(count >= 0 && (count == 0 || parameters != nullptr));
  check_that(count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}

}  // namespace

CTXB_EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  CTXB_COUNT_CALL();
  return create(context, flags, device);
}
CTXB_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  CTXB_COUNT_CALL();
  return create(context, flags, device);
}
CTXB_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity,
                                    int affinities, unsigned int flags, CUdevice device) {
  CTXB_COUNT_CALL();
  CUresult status = at_any_time([&] { check_no_affinity(affinity, affinities); });
  return status != CUDA_SUCCESS ? status : create(context, flags, device);
}
#if CUDA_VERSION >= 12050
CTXB_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                                    unsigned int flags, CUdevice device) {
  CTXB_COUNT_CALL();
  CUresult status = at_any_time([&] {
    if (parameters == nullptr) return;
    check_no_affinity(parameters->execAffinityParams, parameters->numExecAffinityParams);
    check_that(parameters->cigParams == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  });
  return status != CUDA_SUCCESS ? status : create(context, flags, device);
}
#endif

CTXB_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  CTXB_COUNT_CALL();
  return destroy(context);
}
CTXB_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  CTXB_COUNT_CALL();
  return destroy(context);
}

CTXB_EXPORT CUresult cuCtxAttach(CUcontext* context, unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(context != nullptr && flags == 0);
    Context& current = working_context();
    ++current.usage;
    *context = current.handle;
  });
}

CTXB_EXPORT CUresult cuCtxDetach(CUcontext context) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& found = any_context(context);
    check_that(context_stack::top() == context, CUDA_ERROR_INVALID_CONTEXT);
    if (found.kind == ContextKind::primary) return;  // its count is of retains
    check_that(found.kind == ContextKind::own, CUDA_ERROR_INVALID_CONTEXT);
    if (--found.usage == 0) end(found);
  });
}

CTXB_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  CTXB_COUNT_CALL();
  return push(context);
}
CTXB_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CTXB_COUNT_CALL();
  return push(context);
}
CTXB_EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  CTXB_COUNT_CALL();
  return pop(context);
}
CTXB_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  CTXB_COUNT_CALL();
  return pop(context);
}

CTXB_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    if (context != nullptr) any_context(context);  // as with push
    context_stack::replace_top(context);
  });
}

CTXB_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(context != nullptr);
    *context = context_stack::top();
  });
}
