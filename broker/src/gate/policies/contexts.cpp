// Contexts that tenants make, and what belongs to a context.
#include <optional>
#include <tuple>

#include "context/guard.hpp"
#include "gate/held.hpp"
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

using GetLimit = DriverFunction<"cuCtxGetLimit", CUresult(std::size_t*, CUlimit)>;

Frame* frame_of(const Caller& caller) noexcept {
  return caller.guarded ? pushed_frame() : nullptr;
}

using MemoryInfo = DriverFunction<"cuMemGetInfo_v2", CUresult(std::size_t*, std::size_t*)>;
using CurrentDevice = DriverFunction<"cuCtxGetDevice", CUresult(CUdevice*)>;

// What a context takes of the device's memory, as seen on large GPUs. The tenant's budget must have
// room for it before one is made.
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

// What the context really took counts from then on, where that can be told. Others may have taken
// or given memory in the meantime, so a figure that cannot be right is ignored.
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
    const Caller caller = enter_policy<Real>();
    current_may_have_changed();
    if (caller.tenant == nullptr) return Real::call(out, rest...);
    const CUdevice device = std::get<device_at>(std::tuple(rest...));
    const auto before = free_memory(device);
    const CUresult status = make_held(*caller.tenant, Kind::context, out, most_of_context,
                                      [&] { return Real::call(out, rest...); });
    if (status == CUDA_SUCCESS) correct_charge(*caller.tenant, *out, before, free_memory(device));
    if (Frame* frame = frame_of(caller); status == CUDA_SUCCESS && frame != nullptr) {
      ++frame->extras().pushed;
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// All that was made in a context ends with it.
void forget_what_ended(GatedTenant& tenant, CUcontext context) noexcept {
  try {
    ledger().forget_context(tenant.holder(), handle_value(context));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is not given back twice:
  }                                  // the driver knows the handles no more
}

// The driver pops a current context that is destroyed.
template <SymbolName name>
struct DestroysContext {
  using Real = DriverFunction<name, CUresult(CUcontext)>;
  static CUresult call(CUcontext context) noexcept {
    const Caller caller = enter_policy<Real>();
    current_may_have_changed();
    if (caller.tenant == nullptr) {
      return end_by_host(Kind::context, handle_value(context), [&] { return Real::call(context); });
    }
    const bool was_current = current_context() == context;
    const CUresult status = end_held(*caller.tenant, Real::symbol, Kind::context,
                                     handle_value(context), [&] { return Real::call(context); });
    if (status == CUDA_SUCCESS) forget_what_ended(*caller.tenant, context);
    if (Frame* frame = frame_of(caller);
        status == CUDA_SUCCESS && was_current && frame != nullptr && frame->extras().pushed > 0) {
      --frame->extras().pushed;
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// Counts one more use of the current context. A tenant may do that to a context that it made.
using Attach = DriverFunction<"cuCtxAttach", CUresult(CUcontext*, unsigned)>;
CUresult attach(CUcontext* context, unsigned flags) noexcept {
  const Caller caller = enter_policy<Attach>();
  const auto current = handle_value(current_context());
  if (caller.tenant == nullptr || ledger().holds(caller.tenant->holder(), Kind::context, current)) {
    return Attach::call(context, flags);
  }
  return refuse_end(*caller.tenant, Attach::symbol, Kind::context, current);
}

using SetLimit = DriverFunction<"cuCtxSetLimit", CUresult(CUlimit, std::size_t)>;
CUresult set_limit(CUlimit limit, std::size_t value) noexcept {
  const Caller caller = enter_policy<SetLimit>();
  if (caller.tenant == nullptr || alone_in_context(caller)) return SetLimit::call(limit, value);
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
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr || alone_in_context(caller)) return Real::call(value...);
    caller.tenant->log_once(Real::symbol,
                            "ignored: it would be the preference of every plug-in on the device; "
                            "a private lease has its own");
    return CUDA_SUCCESS;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

constexpr PolicyRow rows[] = {
    CreatesContext<"cuCtxCreate", 1, unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v2", 1, unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v3", 3, void*, int, unsigned, CUdevice>::row(),
    CreatesContext<"cuCtxCreate_v4", 2, void*, unsigned, CUdevice>::row(),
    CreatesContext<"cuGLCtxCreate", 1, unsigned, CUdevice>::row(),
    CreatesContext<"cuGLCtxCreate_v2", 1, unsigned, CUdevice>::row(),
    CreatesContext<"cuVDPAUCtxCreate", 1, unsigned, CUdevice, unsigned, void*>::row(),
    CreatesContext<"cuVDPAUCtxCreate_v2", 1, unsigned, CUdevice, unsigned, void*>::row(),
    DestroysContext<"cuCtxDestroy">::row(),
    DestroysContext<"cuCtxDestroy_v2">::row(),
    DestroysContext<"cuCtxDetach">::row(),
    policy<Attach, attach>(),
    Makes<"cuGreenCtxCreate", Kind::green_context, bytes_of_green, CUgreenCtx, CUdevResourceDesc,
          CUdevice, unsigned>::row(),
    Ends<"cuGreenCtxDestroy", Kind::green_context, CUgreenCtx>::row(),
    policy<SetLimit, set_limit>(),
    SetsPreference<"cuCtxSetCacheConfig", CUfunc_cache>::row(),
    SetsPreference<"cuCtxSetSharedMemConfig", CUsharedconfig>::row(),
    SetsPreference<"cuCtxResetPersistingL2Cache">::row(),
    unguarded<GetLimit>(),
    unguarded<MemoryInfo>(),
};

}  // namespace

std::span<const PolicyRow> context_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
