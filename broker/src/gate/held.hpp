// SPDX-License-Identifier: Apache-2.0
// Rules for what is made and ended: who made it holds it, and only its holder ends it.
#pragma once

#include <functional>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "context/failed_work.hpp"
#include "context/open_captures.hpp"
#include "gate/rule.hpp"
#include "ledger/ledger.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

template <typename Handle>
std::uint64_t handle_value(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uint64_t>(handle);
  } else {
    return static_cast<std::uint64_t>(handle);
  }
}

using CurrentDevice = DriverFunction<"cuCtxGetDevice", CUresult(CUdevice*)>;

// The context that the calling thread has current; null: none.
CUcontext current_context() noexcept;

// Returns whether the calling tenant is alone in the current context: in that of a private lease,
// or in one that it made itself. Also true if no context is current, because the driver itself
// reports that.
bool alone_in_context(const Caller& caller) noexcept;

// The holding with what the calling thread knows filled in: whose it is, and where it is made. This
// takes a lock under which things also end, so call it before any lock that an end takes.
Holding made_here(GatedTenant& tenant, Holding holding) noexcept;

// Enters what a tenant has made on this thread. False: there is no memory for the entry.
bool record_holding(GatedTenant& tenant, Holding holding) noexcept;

// The same for what a tenant may hold several times: enters one more hold.
void hold_once_more(GatedTenant& tenant, Holding holding) noexcept;

// True for what ended together with the context it was made in: its handle must not reach the
// driver any more.
bool ended_with_context(GatedTenant& tenant, const Holding& holding) noexcept;

// The driver has refused to end it: it is held as before.
void hold_again(const Holding& holding) noexcept;

// Refuses a call that would end or change a thing that the tenant does not hold. The strike says
// who holds the thing. Memory of the tenant's own that another function ends is no breach. Returns
// the status for the call.
CUresult refuse_end(GatedTenant& tenant, const char* function, Kind kind,
                    std::uint64_t handle) noexcept;

// For a call that is taken for the host's. From nobody's code it ends or changes nothing of a
// tenant's: that is refused, and the host is told. Nothing: the call may go on.
std::optional<CUresult> refuse_nobody(const Caller& caller, const char* function, Kind kind,
                                      std::uint64_t handle) noexcept;
// The same where it is known whose the thing is.
[[gnu::cold]] std::optional<CUresult> refuse_nobody(const Caller& caller, const char* function,
                                                    Kind kind, std::uint64_t handle,
                                                    GatedTenant& holder) noexcept;

// For a call that is taken for the host's and that reaches everybody who works on the device, or in
// the context that is current. From nobody's code it is refused while a tenant has a lease there.
std::optional<CUresult> refuse_nobody_on(const Caller& caller, const char* function,
                                         CUdevice device) noexcept;
std::optional<CUresult> refuse_nobody_here(const Caller& caller, const char* function) noexcept;

// Makes the driver's call for the host, unless refuse_nobody_on refuses it.
template <typename Real, typename... Arguments>
CUresult call_of_host_on(const Caller& caller, CUdevice device, Arguments... arguments) noexcept {
  const auto refused = refuse_nobody_on(caller, Real::symbol, device);
  return refused ? *refused : Real::call(arguments...);
}
template <typename Real, typename... Arguments>
CUresult call_of_host_here(const Caller& caller, Arguments... arguments) noexcept {
  const auto refused = refuse_nobody_here(caller, Real::symbol);
  return refused ? *refused : Real::call(arguments...);
}

// Returns the GatedTenant that holds the thing, if the same tenant has it open beside this one.
// Code that stays can have left the thing there. Null: the thing is not the tenant's.
[[gnu::cold]] GatedTenant* other_holder(const GatedTenant& tenant, Kind kind,
                                        std::uint64_t handle) noexcept;

// Returns whether the memory is the machine's, and not a device's.
inline bool is_of_host(const CUmemLocation& location) noexcept {
  return location.type > CU_MEM_LOCATION_TYPE_DEVICE;
}

// The driver has not registered memory, because a registration of a tenant covers a part of it. The
// host is told whose that is, once for each. `fresh`: see CoveredObserver; then it is a strike.
// `caller`: who wanted to register it; a tenant's own registration is no news. Null: the broker.
[[gnu::cold]] void tell_of_registration(const void* address, std::uint64_t bytes, bool fresh,
                                        const GatedTenant* caller) noexcept;

// The tenant asked for so much more than a limit leaves. Said once for each limit.
void log_used_up(GatedTenant& tenant, Limit limit, std::uint64_t more) noexcept;

// Takes what the holding needs of the tenant's limits. False, and the host is told: there is no
// room for it.
bool take_share(GatedTenant& tenant, Holding& holding) noexcept;

// There is too little device memory for what a tenant asks for. True when something was given up,
// so that it is worth asking again.
[[gnu::cold]] bool relieve_device(GatedTenant& tenant) noexcept;

// Gives up memory that the tenant's pools keep unused and for which its budget has no room. Defined
// with the rules for pools.
[[gnu::cold]] void give_up_unused(GatedTenant& tenant) noexcept;

// A holding of Kind::peer_access has ended; the context it was made in is current. With the
// rules for peers.
CUresult end_peer_access(std::uint64_t handle) noexcept;

// A tenant's call that makes something; `make` calls the driver. What cannot be entered for want of
// host memory stays the tenant's own affair.
template <typename Make, typename Handle>
CUresult make_held(GatedTenant& tenant, Holding holding, Handle* out, Make&& make) noexcept {
  if (!take_share(tenant, holding)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = make();
  if (status == CUDA_ERROR_OUT_OF_MEMORY && relieve_device(tenant)) status = make();
  bool entered = false;
  if (status == CUDA_SUCCESS && out != nullptr) {
    holding.handle = handle_value(*out);
    entered = record_holding(tenant, holding);
  }
  if (!entered) stop_counting(holding);
  if (status == CUDA_SUCCESS && out != nullptr && !entered && holding.store != nullptr) {
    holding.store->give_back_unused(holding.handle);  // no entry leads to the memory
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (entered && holding.bytes != 0 && tenant.may_keep_too_much()) give_up_unused(tenant);
  return status;
}
template <typename Make, typename Handle>
CUresult make_held(GatedTenant& tenant, Kind kind, Handle* out, std::uint64_t bytes,
                   Make&& make) noexcept {
  return make_held(tenant, Holding{.kind = kind, .bytes = bytes}, out, std::forward<Make>(make));
}

// A tenant's call during which the calling thread waits for the device, from here to the end of the
// scope. No lock, no allocation.
class TimedWait {
 public:
  // `function` is static text.
  TimedWait(GatedTenant& tenant, const char* function) noexcept
      : tenant_(tenant), span_(SpanCategory::wait, function, nullptr, tenant.identity().id) {}
  ~TimedWait() { tenant_.count_wait(timeline_now() - from_); }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;

 private:
  GatedTenant& tenant_;
  const ScopedSpan span_;
  const std::uint64_t from_ = timeline_now();
};

// Memory that graphs allocate for themselves; with the rules for graphs. A graph names it here.
// Throws std::bad_alloc.
void name_graph_memory(std::uint64_t graph, std::uint64_t address);
// After a call that was to free it, which its holder does not hold meanwhile. It is held again if
// that failed, or if a graph still names it.
void settle_freed(const Holding& held, CUresult status) noexcept;
// Returns whether memory at that address can still be the tenant's: a graph that it holds names it,
// or it has outlived its graphs. A capture that failed leaves names behind that belong to no graph.
bool may_be_allocated(const GatedTenant& tenant, std::uint64_t address) noexcept;
// Destroys a graph that is in no ledger, with the names of the memory that it allocates.
CUresult destroy_graph(GatedTenant& tenant, CUgraph graph) noexcept;
// That graph has ended.
void forget_graph_memory(Kind kind, std::uint64_t graph) noexcept;

// Ends the captures that the tenant's code began outside of guards and left open. With the rules
// for captures.
void end_open_captures(GatedTenant& tenant) noexcept;

// A node of a graph that allocates. The driver chooses the address at once, and the memory counts
// from then on, because nobody sees the launches.
template <typename Add>
CUresult make_graph_memory(GatedTenant& tenant, CUgraph graph, std::uint64_t bytes,
                           CUdeviceptr* address, Add&& add) noexcept {
  return make_held(tenant, Kind::graph_memory, address, bytes, [&] {
    const CUresult status = add();
    try {
      if (status == CUDA_SUCCESS) name_graph_memory(handle_value(graph), *address);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as what cannot be entered
    }
    return status;
  });
}

// Returns whether the status of a call that ends a thing says that it does not exist any more.
inline bool is_ended(CUresult status) noexcept {
  return status == CUDA_SUCCESS || status == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         status == Lease::gone;
}

// Give memory back to its store: see stored_memory.hpp.
CUresult free_stored(GatedTenant& tenant, const Holding& held) noexcept;
CUresult free_left(const Holding& held) noexcept;

// Returns whether HungWork makes the driver's call that ends the thing. It does so for a thing in a
// lease whose ending waits for work on the device. While work hangs, it does so for every thing in
// a lease. Contexts, graphs and pools have rules of their own and are excepted.
bool ends_in_its_time(const Holding& held) noexcept;
// Ends the thing through HungWork. If the ending has to wait for work that hangs, it is put off:
// the result is CUDA_SUCCESS, because the tenant has given the thing up and no other code can free
// it, and the bytes stay counted. `settle` is called in each case, with the status of the ending.
CUresult end_in_time(GatedTenant& tenant, const Holding& held,
                     std::function<void(CUresult)> settle) noexcept;

// A thing that a call is about to end. A stream's captures end with it, and so does what is known
// of its work, once the driver has ended it.
class EndingStream {
 public:
  EndingStream(Kind kind, std::uint64_t handle) noexcept
      : stream_(kind == Kind::stream ? reinterpret_cast<CUstream>(handle) : nullptr),
        captures_(stream_),
        failures_(stream_ != nullptr ? failed_work_count() : 0) {}
  // To be called once, after the driver's call.
  void settle(CUresult status) const noexcept {
    if (stream_ == nullptr) return;
    captures_.settle(is_ended(status));
    if (is_ended(status)) forget_failed_work(stream_, failures_);
  }

 private:
  CUstream stream_;  // null: it is no stream
  EndingCaptures captures_;
  std::uint64_t failures_;
};

// After a call that was to end what a tenant held and nobody knows any more.
inline void settle_end(const Holding& held, CUresult status) noexcept {
  is_ended(status) ? stop_counting(held) : hold_again(held);
}

// A tenant's call that ends something. It is forgotten first: as soon as the driver has ended it,
// its value may be another thread's new one. What ends in the order of a stream waits for nothing.
template <typename End>
CUresult end_forgotten(GatedTenant& tenant, const Holding& held, End&& end,
                       bool in_stream_order = false) noexcept {
  const bool is_gone = ended_with_context(tenant, held);
  if (held.store != nullptr && !is_gone && !in_stream_order) return free_stored(tenant, held);
  const EndingStream stream(held.kind, held.handle);
  if (!is_gone && !in_stream_order && ends_in_its_time(held)) {
    return end_in_time(tenant, held, [held, stream](CUresult status) {
      stream.settle(status);
      settle_end(held, status);
    });
  }
  const CUresult status = is_gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : end();
  stream.settle(status);
  settle_end(held, status);
  return status;
}
template <typename End>
CUresult end_held(GatedTenant& tenant, const char* function, Kind kind, std::uint64_t handle,
                  End&& end) noexcept {
  if (const auto held = ledger().remove(kind, handle, tenant.holder())) {
    return end_forgotten(tenant, *held, std::forward<End>(end));
  }
  if (GatedTenant* const other = other_holder(tenant, kind, handle)) {
    return end_held(*other, function, kind, handle, std::forward<End>(end));
  }
  return refuse_end(tenant, function, kind, handle);
}

// The same by the host, which is not held back: then it is nobody's any more.
template <typename End>
CUresult end_by_host(const Caller& caller, const char* function, Kind kind, std::uint64_t handle,
                     End&& end) noexcept {
  std::optional<Holding> held;
  if (any_gated_tenant()) {
    if (const auto refused = refuse_nobody(caller, function, kind, handle)) return *refused;
    held = ledger().remove(kind, handle);
  }
  const EndingStream stream(kind, handle);
  const CUresult status = held && held->store != nullptr ? free_left(*held) : end();
  stream.settle(status);
  if (held) settle_end(*held, status);
  return status;
}

inline constexpr auto no_bytes = [](auto...) { return std::uint64_t{0}; };
inline constexpr auto bytes_first = [](auto bytes, auto...) {
  return static_cast<std::uint64_t>(bytes);
};

// CUresult name(Handle* out, Rest...), which makes one of `kind`; bytes_of(rest...) is the device
// memory it takes.
template <SymbolName name, Kind kind, auto bytes_of, typename Handle, typename... Rest>
struct Makes {
  using Real = DriverFunction<name, CUresult(Handle*, Rest...)>;
  static CUresult call(Handle* out, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, rest...);
    return make_held(*caller.tenant, kind, out, bytes_of(rest...),
                     [&] { return Real::call(out, rest...); });
  }
};

// The same for what takes no device memory.
template <SymbolName name, Kind kind, typename Handle, typename... Rest>
using Counted = Makes<name, kind, no_bytes, Handle, Rest...>;

// CUresult name(Handle handle, Rest...), which ends it.
template <SymbolName name, Kind kind, typename Handle, typename... Rest>
struct Ends {
  using Real = DriverFunction<name, CUresult(Handle, Rest...)>;
  static CUresult call(Handle handle, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    if (handle == Handle{}) return Real::call(handle, rest...);  // freeing nothing is nothing
    if (caller.tenant != nullptr) {
      return end_held(*caller.tenant, Real::symbol, kind, handle_value(handle),
                      [&] { return Real::call(handle, rest...); });
    }
    return end_by_host(caller, Real::symbol, kind, handle_value(handle),
                       [&] { return Real::call(handle, rest...); });
  }
};

// A rule that refuses tenants, with a status that the driver itself could give.
template <SymbolName name, CUresult refusal, typename... Parameters>
struct Refuses {
  using Real = DriverFunction<name, CUresult(Parameters...)>;
  static CUresult call(Parameters... parameters) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(parameters...);
    caller.tenant->log_once(Real::symbol, "refused: it reaches every plug-in of the process");
    return refusal;
  }
};

}  // namespace ctxbroker::detail
