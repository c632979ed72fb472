// SPDX-License-Identifier: Apache-2.0
// cuDevicePrimaryCtx*.
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

// The first versions differ from the present ones as measured on NVIDIA's driver: a release too
// many is no error, a reset gives one retain back, flags cannot change while the context is active.
enum class Version { first, present };

CUresult release(CUdevice device, Version version) {
  return initialised([&] {
    CUresult status = find_device(device).release_primary();
    bool too_many = status == CUDA_ERROR_INVALID_CONTEXT;
    return too_many && version == Version::first ? CUDA_SUCCESS : status;
  });
}

CUresult reset(CUdevice device, Version version) {
  return initialised([&] {
    Device& found = find_device(device);
    CUresult status = found.reset_primary();
    if (status == CUDA_SUCCESS && version == Version::first) found.release_primary();
    return status;
  });
}

CUresult set_flags(CUdevice device, unsigned flags, Version version) {
  return initialised([&] {
    Device& found = find_device(device);
    check_value(valid_context_flags(flags));
    check_that(version == Version::present || !found.primary_state().active,
               CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    found.set_primary_flags(flags);
  });
}

}  // namespace

CTXB_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CTXB_COUNT_CALL();
  return working([&] {
    Device& found = find_device(device);
    check_value(context != nullptr);
    *context = found.retain_primary().handle;
  });
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  CTXB_COUNT_CALL();
  return release(device, Version::first);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CTXB_COUNT_CALL();
  return release(device, Version::present);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  CTXB_COUNT_CALL();
  return reset(device, Version::first);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CTXB_COUNT_CALL();
  return reset(device, Version::present);
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  CTXB_COUNT_CALL();
  return set_flags(device, flags, Version::first);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  CTXB_COUNT_CALL();
  return set_flags(device, flags, Version::present);
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(flags != nullptr && active != nullptr);  // first, as in NVIDIA's driver
    Device& found = find_device(device);
    Device::PrimaryState state = found.primary_state();
    *flags = state.flags;
    *active = state.active;
  });
}
