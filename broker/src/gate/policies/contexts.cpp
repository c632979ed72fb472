// Contexts that tenants make, and what belongs to a context.
#include "context/guard.hpp"
#include "gate/held.hpp"
#include "gate/policies.hpp"

namespace ctxbroker::detail {
namespace {

using Current = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;
using GetLimit = DriverFunction<"cuCtxGetLimit", CUresult(std::size_t*, CUlimit)>;

CUcontext current_context() noexcept {
  CUcontext current = nullptr;
  return Current::call(&current) == CUDA_SUCCESS ? current : nullptr;
}

Frame* frame_of(const Caller& caller) noexcept {
  return caller.guarded ? innermost_place() : nullptr;
}

// It becomes current: what was made is on top of the thread's stack.
template <SymbolName name, typename... Rest>
struct CreatesContext {
  using Real = DriverFunction<name, CUresult(CUcontext*, Rest...)>;
  static CUresult call(CUcontext* out, Rest... rest) noexcept {
    const Caller caller = enter_policy<Real>();
    current_may_have_changed();
    if (caller.tenant == nullptr) return Real::call(out, rest...);
    const CUresult status =
        make_held(*caller.tenant, Kind::context, out, 0, [&] { return Real::call(out, rest...); });
    if (Frame* frame = frame_of(caller); status == CUDA_SUCCESS && frame != nullptr) {
      ++frame->pushed;
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// With a context all that was made in it ends.
void forget_what_ended(const GatedTenant& tenant, CUcontext context) noexcept {
  try {
    owners().forget_context(tenant.id(), handle_value(context));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is not given back twice:
  }                                  // the driver knows the handles no more
}

// Destroying what is current pops it.
template <SymbolName name>
struct DestroysContext {
  using Real = DriverFunction<name, CUresult(CUcontext)>;
  static CUresult call(CUcontext context) noexcept {
    const Caller caller = enter_policy<Real>();
    current_may_have_changed();
    if (caller.tenant == nullptr) {
      if (any_gated_tenant()) owners().remove(Kind::context, handle_value(context));
      return Real::call(context);
    }
    const bool was_current = current_context() == context;
    const CUresult status = end_held(*caller.tenant, Real::symbol, Kind::context,
                                     handle_value(context), [&] { return Real::call(context); });
    if (status == CUDA_SUCCESS) forget_what_ended(*caller.tenant, context);
    if (Frame* frame = frame_of(caller);
        status == CUDA_SUCCESS && was_current && frame != nullptr && frame->pushed > 0) {
      --frame->pushed;
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// One more use of the current context, when it is one that the tenant made.
using Attach = DriverFunction<"cuCtxAttach", CUresult(CUcontext*, unsigned)>;
CUresult attach(CUcontext* context, unsigned flags) noexcept {
  const Caller caller = enter_policy<Attach>();
  const auto current = handle_value(current_context());
  if (caller.tenant == nullptr || owners().owner(Kind::context, current) == caller.tenant->id()) {
    return Attach::call(context, flags);
  }
  return refuse_end(*caller.tenant, Attach::symbol, Kind::context, current);
}

// Whether the current context is the tenant's alone: a private lease, or one that it made.
bool alone_in_context(const Caller& caller) noexcept {
  const CUcontext current = current_context();
  if (current == nullptr) return true;  // the driver says that there is none
  if (owners().owner(Kind::context, handle_value(current)) == caller.tenant->id()) return true;
  const int device = caller.tenant->device_of(current);
  CapturedLease lease;
  return device >= 0 && caller.tenant->has_lease(device) &&
         caller.tenant->lease(device, &lease) == CUDA_SUCCESS &&
         lease.kind == LeaseKind::private_own;
}

using SetLimit = DriverFunction<"cuCtxSetLimit", CUresult(CUlimit, std::size_t)>;
CUresult set_limit(CUlimit limit, std::size_t value) noexcept {
  const Caller caller = enter_policy<SetLimit>();
  if (caller.tenant == nullptr || alone_in_context(caller)) return SetLimit::call(limit, value);
  std::size_t there = 0;
  const CUresult status = GetLimit::call(&there, limit);
  if (status != CUDA_SUCCESS || value <= there) return status;
  caller.tenant->note_once(SetLimit::symbol,
                           "refused: the limit is that of every plug-in on the device; a private "
                           "lease has limits of its own");
  return CUDA_ERROR_UNSUPPORTED_LIMIT;
}

// A preference for how the driver uses the context, or for what its cache keeps.
template <SymbolName name, typename... Value>
struct SetsPreference {
  using Real = DriverFunction<name, CUresult(Value...)>;
  static CUresult call(Value... value) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr || alone_in_context(caller)) return Real::call(value...);
    caller.tenant->note_once(Real::symbol,
                             "ignored: it would be the preference of every plug-in on the device; "
                             "a private lease has its own");
    return CUDA_SUCCESS;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

using SetFlags = DriverFunction<"cuCtxSetFlags", CUresult(unsigned)>;
CUresult set_flags(unsigned flags) noexcept {
  const Caller caller = enter_policy<SetFlags>();
  if (caller.tenant == nullptr || alone_in_context(caller)) return SetFlags::call(flags);
  constexpr unsigned preferences = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX;
  if ((flags & ~preferences) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  caller.tenant->note_once(SetFlags::symbol,
                           "ignored: the flags are those of every plug-in on the device");
  return CUDA_SUCCESS;
}

constexpr PolicyRow rows[] = {
    CreatesContext<"cuCtxCreate", unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v2", unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v3", void*, int, unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v4", void*, unsigned, CUdevice>::row(),
    DestroysContext<"cuCtxDestroy">::row(),
    DestroysContext<"cuCtxDestroy_v2">::row(),
    DestroysContext<"cuCtxDetach">::row(),
    policy<Attach, attach>(),
    Makes<"cuGreenCtxCreate", Kind::green_context, no_bytes, CUgreenCtx, CUdevResourceDesc,
          CUdevice, unsigned>::row(),
    Ends<"cuGreenCtxDestroy", Kind::green_context, CUgreenCtx>::row(),
    policy<SetLimit, set_limit>(),
    SetsPreference<"cuCtxSetCacheConfig", CUfunc_cache>::row(),
    SetsPreference<"cuCtxSetSharedMemConfig", CUsharedconfig>::row(),
    SetsPreference<"cuCtxResetPersistingL2Cache">::row(),
    policy<SetFlags, set_flags>(),
    unguarded<Current>(),
    unguarded<GetLimit>(),
};

}  // namespace

std::span<const PolicyRow> context_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
