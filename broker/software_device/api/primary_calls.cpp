// cuDevicePrimaryCtx*.
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

CUresult release(CUdevice device) {
  return initialised([&] { find_device(device).release_primary(); });
}

CUresult reset(CUdevice device) {
  return initialised([&] { find_device(device).reset_primary(); });
}

CUresult set_flags(CUdevice device, unsigned flags) {
  return initialised([&] {
    Device& found = find_device(device);
    require_value(valid_context_flags(flags));
    found.set_primary_flags(flags);
  });
}

}  // namespace

CTXB_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return working([&] {
    Device& found = find_device(device);
    require_value(context != nullptr);
    *context = found.retain_primary().handle;
  });
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release(device);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release(device);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return reset(device);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset(device);
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return set_flags(device, flags);
}
CTXB_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return set_flags(device, flags);
}

CTXB_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return initialised([&] {
    Device& found = find_device(device);
    require_value(flags != nullptr && active != nullptr);
    Device::PrimaryState state = found.primary_state();
    *flags = state.flags;
    *active = state.active;
  });
}
