// Which context is current on a thread. For a tenant, "the primary" is its own lease, and nothing
// below its guard is popped.
#include "context/guard.hpp"
#include "context/lease_users.hpp"
#include "gate/policy.hpp"
#include "memory/ledger.hpp"

namespace ctxbroker::detail {
namespace {

using GetCurrent = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;

// The tenant's lease for this thread, which counts as inside while the lease may be current.
// `asked` is the context that stands for it.
CUresult own_lease(const Caller& caller, int device, CUcontext asked, CUcontext* context) noexcept {
  TranslatedLease lease;
  CUresult status = caller.tenant->lease(device, &lease);
  if (!caller.guarded) {
    // A lease that was lost and has ended in the meantime has a next generation.
    while (status == CUDA_SUCCESS && !borrow_on_this_thread(lease.borrowers)) {
      status = caller.tenant->lease(device, &lease);
    }
    *context = lease.target.context;
    return status;
  }
  if (status != CUDA_SUCCESS) return status;
  Frame* const frame = pushed_frame();
  if (frame != nullptr && frame->target.generation == lease.target.generation) {
    *context = frame->target.context;
    caller.tenant->remember_meaning(asked, frame->target.generation);
    return status;
  }
  if (frame != nullptr && lease.target.users != nullptr) {
    return enter_translated(*frame, *lease.target.users, lease.target.generation, context);
  }
  *context = lease.target.context;
  return status;
}

// Finds what is made current when a tenant asks for `context`.
CUresult translate(const Caller& caller, const char* function, CUcontext context,
                   CUcontext* wanted) noexcept {
  *wanted = context;
  if (context == nullptr) {
    if (!caller.guarded) borrow_on_this_thread(nullptr);
    return CUDA_SUCCESS;
  }
  if (caller.guarded) {
    const Frame* const frame = pushed_frame();
    if (frame != nullptr && caller.tenant->means(context, frame->target.generation)) {
      *wanted = frame->target.context;
      return CUDA_SUCCESS;
    }
  }
  const int device = caller.tenant->device_of(context);
  if (device >= 0) return own_lease(caller, device, context, wanted);
  const auto value = reinterpret_cast<std::uint64_t>(context);
  for (const Kind kind : {Kind::context, Kind::green_context}) {
    if (ledger().holds(caller.tenant->holder(), kind, value)) return CUDA_SUCCESS;
    if (ledger().find(kind, value)) {
      caller.tenant->strike(function, "wanted a neighbour's context current; it was refused");
      return CUDA_ERROR_INVALID_CONTEXT;
    }
  }
  if (holder_of_context(context, *caller.tenant) != nullptr) {
    caller.tenant->strike(function, "wanted a neighbour's lease current; it was refused");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  int meant = caller.tenant->unused_device_of(context);
  // The driver must not see the handle of a context that has ended.
  if (meant < 0) meant = caller.tenant->device_of_ended(context);
  return meant >= 0 ? own_lease(caller, meant, context, wanted) : CUDA_SUCCESS;
}

using SetCurrent = DriverFunction<"cuCtxSetCurrent", CUresult(CUcontext)>;
using GetDevice = DriverFunction<"cuCtxGetDevice", CUresult(CUdevice*)>;
CUresult set_current(CUcontext context) noexcept {
  const Caller caller = enter_policy<SetCurrent>();
  if (caller.tenant == nullptr) {
    // What a tenant's unguarded code left current on the thread is replaced.
    if (!is_known_to_be_current(context)) current_may_have_changed();
    const CUresult set = SetCurrent::call(context);
    if (set == CUDA_SUCCESS && pushed_frame() == nullptr) borrow_on_this_thread(nullptr);
    return set;
  }
  CUcontext wanted = nullptr;
  CUresult status = translate(caller, SetCurrent::symbol, context, &wanted);
  if (status != CUDA_SUCCESS) return status;
  // The runtime library sets what is current already, again and again. A look costs less than that.
  CUcontext before = nullptr;
  const bool looked = GetCurrent::call(&before) == CUDA_SUCCESS;
  if (looked && before == wanted) return CUDA_SUCCESS;
  current_may_have_changed();
  // Setting replaces the top; only on an empty stack does it push, and with null it pops.
  Frame* const frame = caller.guarded ? pushed_frame() : nullptr;
  const bool pushes =
      frame != nullptr && frame->target.context == nullptr && looked && before == nullptr;
  status = SetCurrent::call(wanted);
  if (status != CUDA_SUCCESS || frame == nullptr) return status;
  if (pushes) ++frame->extras().pushed;
  if (wanted == nullptr && frame->extras().pushed > 0) --frame->extras().pushed;
  return status;
}

template <typename Real>
CUresult push_current(CUcontext context) noexcept {
  const Caller caller = enter_policy<Real>();
  current_may_have_changed();
  if (caller.tenant == nullptr) return Real::call(context);
  CUcontext wanted = nullptr;
  CUresult status = translate(caller, Real::symbol, context, &wanted);
  if (status == CUDA_SUCCESS) status = Real::call(wanted);
  Frame* const frame = caller.guarded ? pushed_frame() : nullptr;
  if (status == CUDA_SUCCESS && frame != nullptr) ++frame->extras().pushed;
  return status;
}

template <typename Real>
CUresult pop_current(CUcontext* context) noexcept {
  const Caller caller = enter_policy<Real>();
  current_may_have_changed();
  Frame* const frame = caller.guarded ? pushed_frame() : nullptr;
  if (frame == nullptr) return Real::call(context);
  if (frame->extras().pushed <= 0) {
    caller.tenant->strike(Real::symbol,
                          "popped a context that it did not push; nothing was popped");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const CUresult status = Real::call(context);
  if (status == CUDA_SUCCESS) --frame->extras().pushed;
  return status;
}

// The guard puts the thread's own mode back.
using ExchangeMode =
    DriverFunction<"cuThreadExchangeStreamCaptureMode", CUresult(CUstreamCaptureMode*)>;
CUresult exchange_mode(CUstreamCaptureMode* mode) noexcept {
  enter_policy<ExchangeMode>();
  current_may_have_changed();
  return ExchangeMode::call(mode);
}

using PushV1 = DriverFunction<"cuCtxPushCurrent", CUresult(CUcontext)>;
using PushV2 = DriverFunction<"cuCtxPushCurrent_v2", CUresult(CUcontext)>;
using PopV1 = DriverFunction<"cuCtxPopCurrent", CUresult(CUcontext*)>;
using PopV2 = DriverFunction<"cuCtxPopCurrent_v2", CUresult(CUcontext*)>;

constexpr PolicyRow rows[] = {
    policy<SetCurrent, set_current>(),
    policy<PushV1, push_current<PushV1>>(),
    policy<PushV2, push_current<PushV2>>(),
    policy<PopV1, pop_current<PopV1>>(),
    policy<PopV2, pop_current<PopV2>>(),
    policy<ExchangeMode, exchange_mode>(),
    unguarded<GetCurrent>(),
    unguarded<GetDevice>(),
};

}  // namespace

void lead_to_own_lease(GatedTenant& tenant) noexcept {
  CUdevice device = 0;
  CUcontext own = nullptr;
  // What the thread has borrowed is still there.
  if (!borrows_on_this_thread() || GetDevice::call(&device) != CUDA_SUCCESS) return;
  current_may_have_changed();
  if (own_lease({&tenant, false}, device, nullptr, &own) == CUDA_SUCCESS) SetCurrent::call(own);
}

std::span<const PolicyRow> current_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
