// A device's primary context: a tenant has its own lease instead.
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

// The driver checks the device before all else, and so does this.
template <typename Use>
CUresult on_device(GatedTenant& tenant, CUdevice device, Use&& use) {
  if (!tenant.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return tenant.with_primary(device, std::forward<Use>(use));
}

using Retain = DriverFunction<"cuDevicePrimaryCtxRetain", CUresult(CUcontext*, CUdevice)>;
CUresult retain(CUcontext* context, CUdevice device) noexcept {
  const Caller caller = enter_policy<Retain>();
  if (caller.tenant == nullptr) return Retain::call(context, device);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TranslatedLease lease;
  const CUresult status = caller.tenant->lease(device, &lease);
  if (status != CUDA_SUCCESS) return status;
  *context = lease.target.context;
  return on_device(*caller.tenant, device, [](PrimaryView& view) {
    ++view.retains;
    return CUDA_SUCCESS;
  });
}

template <typename Real>
CUresult release(CUdevice device) noexcept {
  const Caller caller = enter_policy<Real>();
  if (caller.tenant == nullptr) return Real::call(device);
  bool too_often = false;
  const CUresult status = on_device(*caller.tenant, device, [&](PrimaryView& view) {
    too_often = view.retains == 0;
    if (too_often) return CUDA_ERROR_INVALID_CONTEXT;
    --view.retains;
    return CUDA_SUCCESS;
  });
  if (too_often) {
    caller.tenant->strike(Real::symbol,
                          "released the primary context more often than it retained it; nothing "
                          "was released");
  }
  return status;
}

template <typename Real>
CUresult reset(CUdevice device) noexcept {
  const Caller caller = enter_policy<Real>();
  if (caller.tenant == nullptr) return Real::call(device);
  const CUresult status = on_device(*caller.tenant, device, [](PrimaryView& view) {
    view.retains = 0;
    view.flags.reset();  // a private lease keeps its own, as it keeps all that is in it
    return CUDA_SUCCESS;
  });
  if (status == CUDA_SUCCESS) {
    caller.tenant->log_once(Real::symbol,
                            "absorbed: no neighbour notices, and what the tenant holds is given "
                            "back at its end");
  }
  return status;
}

using GetState = DriverFunction<"cuDevicePrimaryCtxGetState", CUresult(CUdevice, unsigned*, int*)>;
CUresult get_state(CUdevice device, unsigned* flags, int* active) noexcept {
  const Caller caller = enter_policy<GetState>();
  if (caller.tenant == nullptr) return GetState::call(device, flags, active);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool leased = caller.tenant->has_lease(device);
  return on_device(*caller.tenant, device, [&](const PrimaryView& view) {
    *flags = view.flags.value_or(0);
    *active = leased || view.retains > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

template <SymbolName name>
using OnDevice = DriverFunction<name, CUresult(CUdevice)>;
using ReleaseV1 = OnDevice<"cuDevicePrimaryCtxRelease">;
using ReleaseV2 = OnDevice<"cuDevicePrimaryCtxRelease_v2">;
using ResetV1 = OnDevice<"cuDevicePrimaryCtxReset">;
using ResetV2 = OnDevice<"cuDevicePrimaryCtxReset_v2">;

constexpr PolicyRow rows[] = {
    policy<Retain, retain>(),
    policy<ReleaseV1, release<ReleaseV1>>(),
    policy<ReleaseV2, release<ReleaseV2>>(),
    policy<ResetV1, reset<ResetV1>>(),
    policy<ResetV2, reset<ResetV2>>(),
    policy<GetState, get_state>(),
};

}  // namespace

std::span<const PolicyRow> primary_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
