// SPDX-License-Identifier: Apache-2.0
// A device's primary context: a tenant has its own lease instead, which is active for it from the
// time that it could be for a program of the tenant's own. And the flags of contexts, such as how
// threads wait, and their preference for caches. The primary's count for all tenants on the device,
// and a green context has the primary's. A tenant without a context of its own therefore has flags
// and a preference that only it can see.
#include <optional>

#include "context/guard.hpp"
#include "gate/held.hpp"
#include "gate/primary_watch.hpp"

namespace ctxbroker::detail {
namespace {

// The driver checks the device before it does anything, and so does this.
template <typename Use>
CUresult on_device(GatedTenant& tenant, CUdevice device, Use&& use) {
  if (!tenant.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return tenant.with_primary(device, std::forward<Use>(use));
}

// A program that has the process to itself finds the primary inactive until it retains it, or makes
// it current with the runtime library. The context of a guard counts once the tenant knows it.
bool is_active(const GatedTenant& tenant, CUdevice device, const PrimaryView& view) noexcept {
  return view.retains > 0 || tenant.was_told(device);
}

using Retain = DriverFunction<"cuDevicePrimaryCtxRetain", CUresult(CUcontext*, CUdevice)>;
CUresult retain(CUcontext* context, CUdevice device) noexcept {
  const Caller caller = enter_rule<Retain>();
  if (caller.tenant == nullptr) {
    const CUresult retained = Retain::call(context, device);
    if (retained == CUDA_SUCCESS) report_retained(device);
    return retained;
  }
  if (context == nullptr) {
    return caller.tenant->has_device(device) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
  }
  TranslatedLease lease;
  const CUresult status = caller.tenant->lease(device, &lease);
  if (status != CUDA_SUCCESS) return status;
  *context = lease.target.context;
  return on_device(*caller.tenant, device, [](PrimaryView& view) {
    ++view.retains;
    return CUDA_SUCCESS;
  });
}

// A host's call that would destroy the primary context.
template <typename Real>
CUresult end_of_host(const Caller& caller, CUdevice device) noexcept {
  const CUresult status = call_of_host_on<Real>(caller, device, device);
  if (status == CUDA_ERROR_NOT_PERMITTED) report_kept(Real::symbol, device, caller.from);
  return status;
}

template <typename Real>
CUresult release(CUdevice device) noexcept {
  const Caller caller = enter_rule<Real>();
  if (caller.tenant == nullptr) return end_of_host<Real>(caller, device);
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
  const Caller caller = enter_rule<Real>();
  if (caller.tenant == nullptr) return end_of_host<Real>(caller, device);
  const CUresult status = on_device(*caller.tenant, device, [&](PrimaryView& view) {
    view.retains = 0;
    view.flags.reset();  // a private lease keeps its own, as it keeps all that is in it
    view.cache_config.reset();
    caller.tenant->forget_told(device);
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
  const Caller caller = enter_rule<GetState>();
  if (caller.tenant == nullptr) return GetState::call(device, flags, active);
  // The driver checks the pointers before the device.
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned told_flags = 0;
  bool told_active = false;
  const CUresult status = on_device(*caller.tenant, device, [&](const PrimaryView& view) {
    told_flags = view.flags.value_or(0);
    told_active = is_active(*caller.tenant, device, view);
    return CUDA_SUCCESS;
  });
  if (status != CUDA_SUCCESS) return status;
  // Neither here nor below is an address of the caller written under a lock, because the caller may
  // survive a bad one.
  *flags = told_flags;
  *active = told_active ? 1 : 0;
  return status;
}

template <SymbolName name>
using OnDevice = DriverFunction<name, CUresult(CUdevice)>;
using ReleaseV1 = OnDevice<"cuDevicePrimaryCtxRelease">;
using ReleaseV2 = OnDevice<"cuDevicePrimaryCtxRelease_v2">;
using ResetV1 = OnDevice<"cuDevicePrimaryCtxReset">;
using ResetV2 = OnDevice<"cuDevicePrimaryCtxReset_v2">;

using SetFlags = DriverFunction<"cuCtxSetFlags", CUresult(unsigned)>;
using GetFlags = DriverFunction<"cuCtxGetFlags", CUresult(unsigned*)>;

// Returns whether the driver would accept the flags.
bool are_valid(unsigned flags) noexcept {
  constexpr unsigned known = 0xffU;  // scheduling, host mapping, local memory, core dumps, copies
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~known) == 0 &&
         (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
          schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

// A preference can be kept without being followed. Other flags (core dumps, copies that wait)
// change what a program does.
bool are_preferences(unsigned flags) noexcept {
  constexpr unsigned preferences = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX;
  return (flags & ~preferences) == 0;
}

CUresult note_flags(GatedTenant& tenant, int device, unsigned flags) noexcept {
  return tenant.with_primary(device, [&](PrimaryView& view) {
    view.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult keep(GatedTenant& tenant, const char* function, int device, unsigned flags) noexcept {
  if (!are_valid(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!are_preferences(flags)) return CUDA_ERROR_NOT_SUPPORTED;
  tenant.log_once(function,
                  "kept for the tenant alone and not followed: the flags are those of every "
                  "plug-in on the device; a private lease has its own");
  return note_flags(tenant, device, flags);
}

// Sets them in the tenant's own context, whatever is current.
CUresult apply(const TranslatedLease& lease, unsigned flags) noexcept {
  if (!SetFlags::is_bound()) return CUDA_ERROR_NOT_SUPPORTED;
  return guarded(lease.target, {}, [&] { return SetFlags::call(flags); });
}

// "The primary" is the tenant's lease. It is made here if there is none. The first form of the call
// changes nothing while the primary is active.
template <typename Real, bool first_form = false>
CUresult set_primary_flags(CUdevice device, unsigned flags) noexcept {
  const Caller caller = enter_rule<Real>();
  if (caller.tenant == nullptr) return call_of_host_on<Real>(caller, device, device, flags);
  GatedTenant& tenant = *caller.tenant;
  if (!tenant.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (first_form && are_valid(flags)) {
    const CUresult refused = tenant.with_primary(device, [&](const PrimaryView& view) {
      return is_active(tenant, device, view) ? CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE : CUDA_SUCCESS;
    });
    if (refused != CUDA_SUCCESS) return refused;
  }
  TranslatedLease lease;
  CUresult status = tenant.lease(device, &lease);
  if (status != CUDA_SUCCESS) return status;
  if (lease.kind != LeaseKind::private_own) return keep(tenant, Real::symbol, device, flags);
  status = apply(lease, flags);
  return status == CUDA_SUCCESS ? note_flags(tenant, device, flags) : status;
}

// The device whose lease the calling tenant has current; -1: something else is current.
int device_of_current_lease(const Caller& caller) noexcept {
  const CUcontext current = current_context();
  const bool own = current == nullptr ||
                   ledger().holds(caller.tenant->holder(), Kind::context, handle_value(current));
  return own ? -1 : caller.tenant->find_device(current);
}

CUresult set_flags(unsigned flags) noexcept {
  const Caller caller = enter_rule<SetFlags>();
  if (caller.tenant == nullptr) return call_of_host_here<SetFlags>(caller, flags);
  const int device = device_of_current_lease(caller);
  if (!alone_in_context(caller)) {
    return device < 0 ? CUDA_ERROR_NOT_SUPPORTED
                      : keep(*caller.tenant, SetFlags::symbol, device, flags);
  }
  const CUresult status = SetFlags::call(flags);
  return status == CUDA_SUCCESS && device >= 0 ? note_flags(*caller.tenant, device, flags) : status;
}

CUresult get_flags(unsigned* flags) noexcept {
  const Caller caller = enter_rule<GetFlags>();
  const CUresult status = GetFlags::call(flags);
  if (caller.tenant == nullptr || status != CUDA_SUCCESS) return status;
  const int device = device_of_current_lease(caller);
  if (device < 0) return status;
  const bool follows = alone_in_context(caller);
  std::optional<unsigned> kept;
  caller.tenant->with_primary(device, [&](const PrimaryView& view) {
    if (!follows) kept = view.flags;
    return CUDA_SUCCESS;
  });
  // The driver maps host memory in a primary, whatever it was asked for.
  *flags = kept.value_or(*flags) | CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}

using SetCache = DriverFunction<"cuCtxSetCacheConfig", CUresult(CUfunc_cache)>;
using GetCache = DriverFunction<"cuCtxGetCacheConfig", CUresult(CUfunc_cache*)>;

// The caller may give any number for the preference.
[[gnu::no_sanitize("enum")]] CUresult set_cache(CUfunc_cache config) noexcept {
  const Caller caller = enter_rule<SetCache>();
  if (caller.tenant == nullptr) return call_of_host_here<SetCache>(caller, config);
  if (alone_in_context(caller)) return SetCache::call(config);
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  caller.tenant->log_once(SetCache::symbol,
                          "kept for the tenant alone and not followed: it would be the preference "
                          "of every plug-in on the device; a private lease has its own");
  const int device = device_of_current_lease(caller);
  if (device < 0) return CUDA_SUCCESS;
  return caller.tenant->with_primary(device, [&](PrimaryView& view) {
    view.cache_config = config;
    return CUDA_SUCCESS;
  });
}

CUresult get_cache(CUfunc_cache* config) noexcept {
  const Caller caller = enter_rule<GetCache>();
  const CUresult status = GetCache::call(config);
  if (caller.tenant == nullptr || status != CUDA_SUCCESS || alone_in_context(caller)) return status;
  const int device = device_of_current_lease(caller);
  if (device < 0) return status;
  std::optional<CUfunc_cache> kept;
  caller.tenant->with_primary(device, [&](const PrimaryView& view) {
    kept = view.cache_config;
    return CUDA_SUCCESS;
  });
  if (kept) *config = *kept;
  return CUDA_SUCCESS;
}

using SetPrimaryV1 = DriverFunction<"cuDevicePrimaryCtxSetFlags", CUresult(CUdevice, unsigned)>;
using SetPrimaryV2 = DriverFunction<"cuDevicePrimaryCtxSetFlags_v2", CUresult(CUdevice, unsigned)>;

constexpr RuleRow primary_rows[] = {
    rule<Retain, retain>(),
    rule<ReleaseV1, release<ReleaseV1>>(),
    rule<ReleaseV2, release<ReleaseV2>>(),
    rule<ResetV1, reset<ResetV1>>(),
    rule<ResetV2, reset<ResetV2>>(),
    rule<GetState, get_state>(),
    rule<SetPrimaryV1, set_primary_flags<SetPrimaryV1, true>>(),
    rule<SetPrimaryV2, set_primary_flags<SetPrimaryV2>>(),
    rule<SetFlags, set_flags>(),
    rule<GetFlags, get_flags>(),
    rule<SetCache, set_cache>(),
    rule<GetCache, get_cache>(),
};

}  // namespace

constinit const std::span<const RuleRow> primary_rules = primary_rows;

}  // namespace ctxbroker::detail
