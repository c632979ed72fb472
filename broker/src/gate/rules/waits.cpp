// SPDX-License-Identifier: Apache-2.0
// Calls that keep the calling thread waiting for the device: the driver's own, and timed.
//
// While work hangs in the context family of the caller, a wait that may meet it is made by asking
// again and again, no longer than BrokerOptions::end_timeout. It is answered CUDA_ERROR_NOT_READY
// then. That is safe: nothing has been given up, the caller is told that its work is not done, and
// it may ask again. A wait for healthy work of the caller's own takes as long as that work does.
//
// A wait for all work of the primary, which a shared lease's is, is made on the family's own
// thread: it can be answered when something turns out to hang after the wait has begun.
//
// A wait after which a function of the tenant's code has failed in what it waits for is answered
// CUDA_ERROR_UNKNOWN, once.
#include "context/failed_work.hpp"
#include "context/timed_wait.hpp"
#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

// Older drivers have no call that names the context. There, the context of another thread is
// current on both for as long as the wait takes.
using WaitsForNamed = DriverFunction<"cuCtxSynchronize_v2", CUresult(CUcontext)>;
CUresult wait_in(const DriverTable& table, CUcontext there) noexcept {
  return call_in(table, there, [&table] { return table.ctx_synchronize(); });
}
CUresult wait_for_other(const DriverTable& table, CUcontext other) noexcept {
  return WaitsForNamed::is_bound() ? WaitsForNamed::call(other) : wait_in(table, other);
}

// `stream`: as take_failed_work.
CUresult told_of_failure(GatedTenant& tenant, CUstream stream, CUresult status) noexcept {
  if (status != CUDA_SUCCESS) return status;
  return take_failed_work(tenant.identity().id, stream, FailureReader::code) ? CUDA_ERROR_UNKNOWN
                                                                             : CUDA_SUCCESS;
}

// The whole context, which is the current one where the call names none, or null.
template <SymbolName name, typename... Context>
struct WaitsForContext {
  using Real = DriverFunction<name, CUresult(Context...)>;
  static CUcontext named(CUcontext context = nullptr) noexcept {
    return context != nullptr ? context : current_context();
  }
  static CUresult call(Context... context) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(context...);
    const TimedWait wait(*caller.tenant, Real::symbol);
    CUcontext const asked = named(context...);
    GatedTenant& tenant = *caller.tenant;
    const std::shared_ptr<Lease> lease = tenant.lease_meant(asked);
    if (lease == nullptr) {
      return told_of_failure(tenant, CU_STREAM_LEGACY, Real::call(context...));
    }
    HungWork& family = *lease->family();
    // A green context is waited for alone.
    const bool meets_hung =
        family.is_hung() && (lease->kind() != LeaseKind::green || lease->is_hung());
    if (meets_hung && !family.wait_until_clear()) return CUDA_ERROR_NOT_READY;
    if (lease->kind() != LeaseKind::shared) {
      return told_of_failure(tenant, CU_STREAM_LEGACY, wait_for_lease(*lease, asked, context...));
    }
    try {
      const CUresult status = family.wait_for_all(
          [&table = lease->table(), there = lease->context()] { return wait_in(table, there); });
      return told_of_failure(tenant, CU_STREAM_LEGACY, status);
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }

  // In a green lease, other threads of the tenant work in contexts of their own, which the tenant
  // knows by the same handle. With the primary it means its lease.
  static CUresult wait_for_lease(const Lease& lease, CUcontext asked, Context... context) noexcept {
    const bool is_of_lease = lease.has_context(asked);
    CUresult status = is_of_lease ? Real::call(context...) : CUDA_SUCCESS;
    lease.users().for_each_other(is_of_lease ? asked : nullptr, [&](CUcontext other) {
      if (status == CUDA_SUCCESS) status = wait_for_other(lease.table(), other);
    });
    return status;
  }
};

// A stream or an event, for which the driver has a call that does not wait.
template <SymbolName name, SymbolName query, typename Handle>
struct Waits {
  using Real = DriverFunction<name, CUresult(Handle)>;
  using Query = DriverFunction<query, CUresult(Handle)>;
  static CUresult call(Handle handle) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(handle);
    const TimedWait wait(*caller.tenant, Real::symbol);
    if (HungWork::anywhere() && Query::is_bound()) {
      const std::shared_ptr<Lease> lease = caller.tenant->lease_meant(current_context());
      if (lease != nullptr && lease->family()->is_hung()) {
        const CUresult status =
            ask_until_ready([&] { return Query::call(handle); }, lease->family()->limit());
        return status == CUDA_ERROR_TIMEOUT ? CUDA_ERROR_NOT_READY : status;
      }
    }
    const CUresult status = Real::call(handle);
    if constexpr (std::is_same_v<Handle, CUstream>) {
      return told_of_failure(*caller.tenant, handle, status);
    } else {
      return status;
    }
  }
  static constexpr RuleRow query_row() { return unguarded<Query>(); }
};

using StreamWaits = Waits<"cuStreamSynchronize", "cuStreamQuery", CUstream>;
using ThreadStreamWaits = Waits<"cuStreamSynchronize_ptsz", "cuStreamQuery_ptsz", CUstream>;
using EventWaits = Waits<"cuEventSynchronize", "cuEventQuery", CUevent>;

constexpr RuleRow wait_rows[] = {
    row<WaitsForContext<"cuCtxSynchronize">>(),
    row<WaitsForContext<"cuCtxSynchronize_v2", CUcontext>>(),
    row<StreamWaits>(),
    StreamWaits::query_row(),
    row<ThreadStreamWaits>(),
    ThreadStreamWaits::query_row(),
    row<EventWaits>(),
    EventWaits::query_row(),
};

}  // namespace

constinit const std::span<const RuleRow> wait_rules = wait_rows;

}  // namespace ctxbroker::detail
