// SPDX-License-Identifier: Apache-2.0
// Contexts: which one is current on a thread, those that tenants make, and what belongs to one. For
// a tenant, "the primary" is its own lease. A call that the driver refuses borrows nothing.
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "context/borrowers.hpp"
#include "context/guard.hpp"
#include "context/hung_work.hpp"
#include "context/lease_users.hpp"
#include "context/ownership.hpp"
#include "gate/held.hpp"
#include "gate/losses.hpp"
#include "gate/rule.hpp"
#include "gate/shown.hpp"

namespace ctxbroker::detail {
namespace {

using GetLimit = DriverFunction<"cuCtxGetLimit", CUresult(std::size_t*, CUlimit)>;

using GetCurrent = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;

// A context that a call is to make current in place of the one that it names.
struct Translated {
  CUcontext context = nullptr;
  BorrowClaim claim;         // on the lease of the context, where no guard keeps that alive
  int device = -1;           // of the lease that the caller means
  bool is_shielded = false;  // the lease
  // The driver has made the context current. `tenant` has asked for it.
  void note_told_to(GatedTenant& tenant) const noexcept {
    if (device >= 0) tenant.note_told(device);
  }
};

// Finds the tenant's lease for this thread. Inside a guard, the thread counts as inside of the
// lease until the guard ends. `asked` is the context that stands for the lease.
CUresult own_lease(const Caller& caller, int device, CUcontext asked, Translated* wanted) noexcept {
  TranslatedLease lease;
  CUresult status = caller.tenant->lease(device, &lease);
  CUcontext* const context = &wanted->context;
  wanted->device = device;
  if (!caller.guarded) {
    // A lease that was lost and has ended in the meantime has a next generation.
    while (status == CUDA_SUCCESS && !(wanted->claim = BorrowClaim(lease.borrowers)).holds()) {
      status = caller.tenant->lease(device, &lease);
    }
    *context = lease.target.context;
    wanted->is_shielded = lease.is_shielded;
    return status;
  }
  if (status != CUDA_SUCCESS) return status;
  Frame* const frame = pushed_frame();
  if (frame != nullptr && frame->target.generation == lease.target.generation) {
    *context = frame->target.context;
    last_meaning = {caller.tenant, asked, frame->target.generation};
    return status;
  }
  if (frame != nullptr && lease.target.users != nullptr) {
    return enter_translated(*frame, *lease.target.users, lease.target.generation, context);
  }
  *context = lease.target.context;
  return status;
}

// The thread's current context, if the driver tells it.
std::optional<CUcontext> current_here() noexcept {
  CUcontext current = nullptr;
  return GetCurrent::call(&current) == CUDA_SUCCESS ? std::optional(current) : std::nullopt;
}

// Finds what is made current when a tenant asks for `context`.
CUresult translate(const Caller& caller, const char* function, CUcontext context,
                   Translated* wanted) noexcept {
  wanted->context = context;
  if (context == nullptr) return CUDA_SUCCESS;
  const Frame* const frame = frame_of(caller);
  if (frame != nullptr && stands_for_lease_of(*frame, *caller.tenant, context)) {
    wanted->context = frame->target.context;
    if (frame->target.users != nullptr) wanted->device = frame->target.users->device();
    return CUDA_SUCCESS;
  }
  const int device = caller.tenant->find_device(context);
  if (device >= 0) return own_lease(caller, device, context, wanted);
  // It may be another tenant's by now. Only a thread that has kept it current still has it.
  if (caller.tenant->has_left(context) && current_here() != context) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  const auto value = reinterpret_cast<std::uint64_t>(context);
  for (const Kind kind : {Kind::context, Kind::green_context}) {
    if (ledger().holds(caller.tenant->holder(), kind, value)) return CUDA_SUCCESS;
    if (ledger().find(kind, value)) {
      caller.tenant->strike(function, "wanted a neighbour's context current; it was refused");
      return CUDA_ERROR_INVALID_CONTEXT;
    }
  }
  if (holder_of_context(context, caller.tenant) != nullptr) {
    caller.tenant->strike(function, "wanted a neighbour's lease current; it was refused");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const int meant = caller.tenant->find_unused_device(context);
  return meant >= 0 ? own_lease(caller, meant, context, wanted) : CUDA_SUCCESS;
}

using SetCurrent = DriverFunction<"cuCtxSetCurrent", CUresult(CUcontext)>;
CUresult set_current(CUcontext context) noexcept {
  const Caller caller = enter_rule<SetCurrent>();
  if (caller.tenant == nullptr) {
    // The host's context replaces one that a tenant's unguarded code left current on the thread.
    if (!is_known_to_be_current(context)) current_may_have_changed();
    const bool replaces = borrows_on_this_thread() && pushed_frame() == nullptr;
    const auto before = replaces ? current_here() : std::nullopt;
    const CUresult set = SetCurrent::call(context);
    if (set == CUDA_SUCCESS && before) borrow_instead(*before, context, {});
    return set;
  }
  // The runtime library and others set what is current already, again and again. A look costs less
  // than that.
  const BorrowingCall call{caller.tenant, caller.tenant->openings(), context,
                           ownership_changes.load(std::memory_order_acquire)};
  const CUcontext borrowed = caller.guarded ? nullptr : borrowed_by(call);
  const auto before = current_here();
  if (borrowed != nullptr && before == borrowed) return CUDA_SUCCESS;
  Translated wanted;
  CUresult status = translate(caller, SetCurrent::symbol, context, &wanted);
  if (status != CUDA_SUCCESS) return status;
  if (before != wanted.context) {
    current_may_have_changed();
    status = SetCurrent::call(wanted.context);
  }
  if (status != CUDA_SUCCESS) return status;
  wanted.note_told_to(*caller.tenant);
  if (before && !caller.guarded) {
    const bool stays = wanted.claim.holds() && wanted.is_shielded;
    borrow_instead(*before, wanted.context, std::move(wanted.claim));
    if (stays) note_borrowing(wanted.context, call);
  }
  return status;
}

template <typename Real>
CUresult push_current(CUcontext context) noexcept {
  const Caller caller = enter_rule<Real>();
  current_may_have_changed();
  if (caller.tenant == nullptr) return Real::call(context);
  Translated wanted;
  CUresult status = translate(caller, Real::symbol, context, &wanted);
  if (status == CUDA_SUCCESS) status = Real::call(wanted.context);
  if (status != CUDA_SUCCESS) return status;
  wanted.note_told_to(*caller.tenant);
  borrow_pushed(wanted.context, std::move(wanted.claim));
  return status;
}

// Inside a guard, the stack holds nothing but what the tenant may pop: what was there before the
// guard is put away, and comes back when the guard ends.
template <typename Real>
CUresult pop_current(CUcontext* context) noexcept {
  const Caller caller = enter_rule<Real>();
  current_may_have_changed();
  CUcontext popped = nullptr;
  const CUresult status = Real::call(&popped);
  if (status != CUDA_SUCCESS) return status;
  if (context != nullptr) *context = shown_to(caller, popped);
  if (pushed_frame() == nullptr) give_back_popped(popped);
  return status;
}

// The guard puts the thread's own mode back.
using ExchangeMode =
    DriverFunction<"cuThreadExchangeStreamCaptureMode", CUresult(CUstreamCaptureMode*)>;
CUresult exchange_mode(CUstreamCaptureMode* mode) noexcept {
  enter_rule<ExchangeMode>();
  current_may_have_changed();
  return ExchangeMode::call(mode);
}

using MemoryInfo = DriverFunction<"cuMemGetInfo_v2", CUresult(std::size_t*, std::size_t*)>;

// Counts memory that stores keep unused as free, because an allocation that needs it gets it.
template <SymbolName name, typename Size>
struct TellsMemory {
  using Real = DriverFunction<name, CUresult(Size*, Size*)>;
  static CUresult call(Size* free, Size* total) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(free, total);
    if (caller.tenant == nullptr || status != CUDA_SUCCESS || free == nullptr) return status;
    const std::shared_ptr<Lease> lease = caller.tenant->lease_meant(current_context());
    if (lease == nullptr || lease->lost()) return status;
    const std::uint64_t all = *free + lease->device().unused_of_stores();
    *free = static_cast<Size>(std::min<std::uint64_t>(all, std::numeric_limits<Size>::max()));
    return status;
  }
};

// The most device memory that a context takes, as seen on large GPUs. The tenant's budget must have
// room for it before a context is made.
constexpr std::uint64_t most_of_context = std::uint64_t{640} << 20;
constexpr std::uint64_t most_of_green_context = std::uint64_t{6} << 20;
constexpr auto bytes_of_green = [](auto...) { return most_of_green_context; };

// The free memory of a device. Nothing: no context of that device is current.
std::optional<std::uint64_t> free_memory(CUdevice device) noexcept {
  CUdevice here = -1;
  std::size_t free = 0, total = 0;
  if (CurrentDevice::call(&here) != CUDA_SUCCESS || here != device) return std::nullopt;
  if (MemoryInfo::call(&free, &total) != CUDA_SUCCESS) return std::nullopt;
  return free;
}

// Corrects the charge to the memory that the context really took, if that is known. Other code may
// have taken or freed memory in the meantime, so a figure that cannot be right is ignored.
void correct_charge(GatedTenant& tenant, CUcontext made, std::optional<std::uint64_t> before,
                    std::optional<std::uint64_t> after) noexcept {
  if (!before || !after || *after > *before || *before - *after > most_of_context) return;
  auto held = ledger().remove(Kind::context, handle_value(made), tenant.holder());
  if (!held) return;
  const std::uint64_t taken = *before - *after;
  tenant.budget().give(held->bytes - taken);
  held->bytes = taken;
  hold_again(*held);
}

// The new context is current: it is on top of the thread's stack. `device_at` is the index of the
// device among the other parameters.
template <SymbolName name, std::size_t device_at, typename... Rest>
struct CreatesContext {
  using Real = DriverFunction<name, CUresult(CUcontext*, Rest...)>;
  static CUresult call(CUcontext* out, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    current_may_have_changed();
    if (caller.tenant == nullptr) return Real::call(out, rest...);
    const CUdevice device = std::get<device_at>(std::tuple(rest...));
    const auto before = free_memory(device);
    const Holding context{.kind = Kind::context,
                          .bytes = most_of_context,
                          .extent = static_cast<std::uint64_t>(device)};
    const CUresult status =
        make_held(*caller.tenant, context, out, [&] { return Real::call(out, rest...); });
    if (status == CUDA_SUCCESS) correct_charge(*caller.tenant, *out, before, free_memory(device));
    return status;
  }
};

// ---- ends of contexts ---------------------------------------------------------------------------

using Detach = DriverFunction<"cuCtxDetach", CUresult(CUcontext)>;

// Returns whether the calling thread can work in the context, which it has current.
bool is_usable_here(CUcontext context) noexcept {
  CUdevice device = -1;
  return current_context() == context && CurrentDevice::call(&device) == CUDA_SUCCESS;
}

// Makes the driver's call that ends the context, and with it the captures of its streams, and the
// lease that it belongs to. The host may have attached a context of its own, and a detach takes one
// use away then.
template <typename Real>
CUresult end_with_captures(CUcontext context) noexcept {
  const EndingCaptures captures(context);
  const auto lease = lease_about_to_end(context);
  const CUresult status = Real::call(context);
  const bool is_one_use = std::is_same_v<Real, Detach> && is_usable_here(context);
  const bool has_ended = is_ended(status) && !is_one_use;
  captures.settle(has_ended);
  if (has_ended) report_ended(lease);
  return status;
}

// All that was made in a context ends with it. The ledger forgets it first, as in end_forgotten.
template <typename Real>
CUresult end_with_all_in_it(GatedTenant& tenant, CUcontext context) noexcept {
  std::vector<Holding> inside;
  try {
    inside = ledger().take_context(tenant.holder(), handle_value(context));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is not given back twice:
  }                                  // the driver knows the handles no more
  const std::uint64_t failures = failed_work_count();
  const CUresult status = end_with_captures<Real>(context);
  for (const Holding& one : inside) {
    if (one.kind == Kind::stream && is_ended(status)) {
      forget_failed_work(reinterpret_cast<CUstream>(one.handle), failures);
    }
    settle_end(one, status);
  }
  return status;
}

// For a call that is taken for the host's: as refuse_nobody, also for the context of a lease, which
// is in no ledger.
std::optional<CUresult> refuse_nobodys_end(const Caller& caller, const char* function,
                                           CUcontext context) noexcept {
  const std::uint64_t value = handle_value(context);
  GatedTenant* const holder = holder_of_context(context);
  return holder != nullptr ? refuse_nobody(caller, function, Kind::context, value, *holder)
                           : refuse_nobody(caller, function, Kind::context, value);
}

// The driver pops a current context that is destroyed.
template <SymbolName name>
struct DestroysContext {
  using Real = DriverFunction<name, CUresult(CUcontext)>;
  static CUresult call(CUcontext context) noexcept {
    const Caller caller = enter_rule<Real>();
    const std::uint64_t value = handle_value(context);
    if (context == nullptr) return Real::call(context);
    current_may_have_changed();
    if (caller.tenant == nullptr) {
      const auto refused = refuse_nobodys_end(caller, Real::symbol, context);
      if (refused) return *refused;
      return end_by_host(caller, Real::symbol, Kind::context, value,
                         [&] { return end_with_captures<Real>(context); });
    }
    return end_held(*caller.tenant, Real::symbol, Kind::context, value,
                    [&] { return end_with_all_in_it<Real>(*caller.tenant, context); });
  }
};

// ---- uses of contexts ---------------------------------------------------------------------------

// The driver counts the uses of a context: cuCtxAttach adds one, and cuCtxDetach takes one away and
// ends the context with the last. The ledger counts those of tenants' contexts beside it, as
// `more_holds`. This is locked while both change. The driver waits for nothing there.
constinit std::mutex uses_mutex;

// The tenants' context that the caller may attach or detach. The host may do that to any. Nothing:
// it is none of theirs.
std::optional<Holding> find_context(const Caller& caller, std::uint64_t context) noexcept {
  if (caller.tenant == nullptr) return ledger().find(Kind::context, context);
  auto held = ledger().find(Kind::context, context, caller.tenant->holder());
  if (held) return held;
  GatedTenant* const other = other_holder(*caller.tenant, Kind::context, context);
  return other != nullptr ? ledger().find(Kind::context, context, other->holder()) : std::nullopt;
}

// Counts one more use of the current context.
using Attach = DriverFunction<"cuCtxAttach", CUresult(CUcontext*, unsigned)>;
CUresult attach(CUcontext* context, unsigned flags) noexcept {
  const Caller caller = enter_rule<Attach>();
  const auto current = handle_value(current_context());
  std::unique_lock lock(uses_mutex);
  const auto held = find_context(caller, current);
  if (caller.tenant != nullptr && !held) {
    lock.unlock();
    return refuse_end(*caller.tenant, Attach::symbol, Kind::context, current);
  }
  const CUresult status = Attach::call(context, flags);
  if (status == CUDA_SUCCESS && held) {
    ledger().count_reference(Kind::context, current, held->holder);
  }
  return status;
}

CUresult detach(CUcontext context) noexcept {
  const Caller caller = enter_rule<Detach>();
  const std::uint64_t value = handle_value(context);
  const auto end = [&] { return Detach::call(context); };
  if (context == nullptr) return end();
  current_may_have_changed();
  if (caller.tenant == nullptr) {
    const auto refused = refuse_nobodys_end(caller, Detach::symbol, context);
    if (refused) return *refused;
  }
  std::unique_lock lock(uses_mutex);
  auto held = find_context(caller, value);
  if (held && held->more_holds != 0) {
    const CUresult status = end();
    if (status == CUDA_SUCCESS) {
      ledger().remove_reference(Kind::context, value, held->holder);
    }
    return status;
  }
  // The last use: from here on, nobody can attach it.
  if (held) held = ledger().remove(Kind::context, value, held->holder);
  lock.unlock();
  if (caller.tenant == nullptr) {
    const CUresult status = end_with_captures<Detach>(context);
    if (held) settle_end(*held, status);
    return status;
  }
  if (!held) return refuse_end(*caller.tenant, Detach::symbol, Kind::context, value);
  GatedTenant* const other = gated_tenant_of(held->holder.tenant);
  GatedTenant& holder = other != nullptr ? *other : *caller.tenant;
  return end_forgotten(holder, *held, [&] { return end_with_all_in_it<Detach>(holder, context); });
}

using SetLimit = DriverFunction<"cuCtxSetLimit", CUresult(CUlimit, std::size_t)>;
CUresult set_limit(CUlimit limit, std::size_t value) noexcept {
  const Caller caller = enter_rule<SetLimit>();
  if (caller.tenant == nullptr) return call_of_host_here<SetLimit>(caller, limit, value);
  if (alone_in_context(caller)) return SetLimit::call(limit, value);
  std::size_t there = 0;
  const CUresult status = GetLimit::call(&there, limit);
  if (status != CUDA_SUCCESS || value <= there) return status;
  caller.tenant->log_once(SetLimit::symbol,
                          "refused: the limit is that of every plug-in on the device; a private "
                          "lease has limits of its own");
  return CUDA_ERROR_UNSUPPORTED_LIMIT;
}

// A preference for how the driver uses the context, or for what its cache keeps.
template <SymbolName name, typename... Value>
struct SetsPreference {
  using Real = DriverFunction<name, CUresult(Value...)>;
  static CUresult call(Value... value) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return call_of_host_here<Real>(caller, value...);
    if (alone_in_context(caller)) return Real::call(value...);
    caller.tenant->log_once(Real::symbol,
                            "ignored: it would be the preference of every plug-in on the device; "
                            "a private lease has its own");
    return CUDA_SUCCESS;
  }
};

// A lease's own is in no ledger.
using DestroyGreen = DriverFunction<"cuGreenCtxDestroy", CUresult(CUgreenCtx)>;
CUresult destroy_green(CUgreenCtx green) noexcept {
  const Caller caller = enter_rule<DestroyGreen>();
  constexpr const char* name = DestroyGreen::symbol;
  const std::uint64_t value = handle_value(green);
  const auto end = [&] { return DestroyGreen::call(green); };
  if (green == nullptr) return end();
  if (caller.tenant != nullptr) {
    return end_held(*caller.tenant, name, Kind::green_context, value, end);
  }
  if (GatedTenant* const holder = holder_of_green(green)) {
    const auto refused = refuse_nobody(caller, name, Kind::green_context, value, *holder);
    if (refused) return *refused;
  }
  const auto lease = lease_about_to_end(green);
  const CUresult status = end_by_host(caller, name, Kind::green_context, value, end);
  if (is_ended(status)) report_ended(lease);
  return status;
}

// The driver makes none before the kernels of the primary and its green contexts have ended. When
// that takes too long, the tenant gets CUDA_ERROR_NOT_READY.
using MakeGreen = DriverFunction<"cuGreenCtxCreate",
                                 CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>;
CUresult make_green_in_time(GatedTenant& tenant, CUgreenCtx* out, CUdevResourceDesc description,
                            CUdevice device, unsigned flags) noexcept {
  const auto family = out == nullptr ? nullptr : tenant.primary_family(device);
  if (family == nullptr) return MakeGreen::call(out, description, device, flags);
  try {
    const auto made = std::make_shared<CUgreenCtx>();
    MakeRequest request;
    request.owner = tenant.identity().lasting_name;
    request.perform = [=] { return MakeGreen::call(made.get(), description, device, flags); };
    request.undo = [made] { DestroyGreen::call(*made); };
    const auto status = family->make(std::move(request));
    if (!status) {
      tenant.log_once(MakeGreen::symbol,
                      (family->why_not_made() +
                       ", and the driver makes no green context before that work ends; the call "
                       "was answered CUDA_ERROR_NOT_READY")
                          .c_str(),
                      Severity::warning);
      return CUDA_ERROR_NOT_READY;
    }
    if (*status == CUDA_SUCCESS) *out = *made;
    return *status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}
CUresult make_green(CUgreenCtx* out, CUdevResourceDesc description, CUdevice device,
                    unsigned flags) noexcept {
  const Caller caller = enter_rule<MakeGreen>();
  if (caller.tenant == nullptr) return MakeGreen::call(out, description, device, flags);
  caller.tenant->mark_own_green();
  return make_held(
      *caller.tenant, Kind::green_context, out, bytes_of_green(description, device, flags),
      [&] { return make_green_in_time(*caller.tenant, out, description, device, flags); });
}

using PushV1 = DriverFunction<"cuCtxPushCurrent", CUresult(CUcontext)>;
using PushV2 = DriverFunction<"cuCtxPushCurrent_v2", CUresult(CUcontext)>;
using PopV1 = DriverFunction<"cuCtxPopCurrent", CUresult(CUcontext*)>;
using PopV2 = DriverFunction<"cuCtxPopCurrent_v2", CUresult(CUcontext*)>;

constexpr RuleRow context_rows[] = {
    rule<SetCurrent, set_current>(),
    rule<PushV1, push_current<PushV1>>(),
    rule<PushV2, push_current<PushV2>>(),
    rule<PopV1, pop_current<PopV1>>(),
    rule<PopV2, pop_current<PopV2>>(),
    rule<ExchangeMode, exchange_mode>(),
    unguarded<CurrentDevice>(),
    row<CreatesContext<"cuCtxCreate", 1, unsigned, CUdevice>>(),
    row<CreatesContext<"cuCtxCreate_v2", 1, unsigned, CUdevice>>(),
    row<CreatesContext<"cuCtxCreate_v3", 3, void*, int, unsigned, CUdevice>>(),
    row<CreatesContext<"cuCtxCreate_v4", 2, void*, unsigned, CUdevice>>(),
    row<CreatesContext<"cuGLCtxCreate", 1, unsigned, CUdevice>>(),
    row<CreatesContext<"cuGLCtxCreate_v2", 1, unsigned, CUdevice>>(),
    row<CreatesContext<"cuVDPAUCtxCreate", 1, unsigned, CUdevice, unsigned, void*>>(),
    row<CreatesContext<"cuVDPAUCtxCreate_v2", 1, unsigned, CUdevice, unsigned, void*>>(),
    row<DestroysContext<"cuCtxDestroy">>(),
    row<DestroysContext<"cuCtxDestroy_v2">>(),
    rule<Detach, detach>(),
    rule<Attach, attach>(),
    rule<MakeGreen, make_green>(),
    rule<DestroyGreen, destroy_green>(),
    rule<SetLimit, set_limit>(),
    row<SetsPreference<"cuCtxSetSharedMemConfig", CUsharedconfig>>(),
    row<SetsPreference<"cuCtxResetPersistingL2Cache">>(),
    unguarded<GetLimit>(),
    row<TellsMemory<"cuMemGetInfo", unsigned int>>(),
    row<TellsMemory<"cuMemGetInfo_v2", std::size_t>>(),
    unguarded<PriorityRange>(),
};

}  // namespace

void lead_to_own_lease(GatedTenant& tenant) noexcept {
  CUdevice device = 0;
  // A context that the thread has borrowed still exists, so the driver can return its device.
  if (!borrows_on_this_thread() || CurrentDevice::call(&device) != CUDA_SUCCESS) return;
  current_may_have_changed();
  Translated own;
  if (own_lease({&tenant, false}, device, nullptr, &own) != CUDA_SUCCESS) return;
  const auto before = current_here();
  if (SetCurrent::call(own.context) != CUDA_SUCCESS) return;
  own.note_told_to(tenant);
  if (before) borrow_instead(*before, own.context, std::move(own.claim));
}

bool lead_out_of_neighbours_lease(GatedTenant& tenant) noexcept {
  const CUcontext current = current_context();
  if (current == nullptr || tenant.holds(current)) return true;
  if (holder_of_context(current, &tenant) == nullptr) return true;
  CUdevice device = 0;
  if (CurrentDevice::call(&device) != CUDA_SUCCESS || !tenant.has_lease(device)) return false;
  lead_to_own_lease(tenant);
  return true;
}

constinit const std::span<const RuleRow> context_rules = context_rows;

}  // namespace ctxbroker::detail
