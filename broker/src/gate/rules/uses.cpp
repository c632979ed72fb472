// SPDX-License-Identifier: Apache-2.0
// Calls that hold up or change streams, events, contexts and memory: on what the caller does not
// hold they are refused. Launches, copies, memsets and queries are not guarded.
#include "context/guard.hpp"
#include "context/hung_work.hpp"
#include "gate/shown.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

// ---- contexts -----------------------------------------------------------------------------------

using ContextRecords = DriverFunction<"cuCtxRecordEvent", CUresult(CUcontext, CUevent)>;
using ContextWaits = DriverFunction<"cuCtxWaitEvent", CUresult(CUcontext, CUevent)>;
using GreenRecords = DriverFunction<"cuGreenCtxRecordEvent", CUresult(CUgreenCtx, CUevent)>;
using GreenWaits = DriverFunction<"cuGreenCtxWaitEvent", CUresult(CUgreenCtx, CUevent)>;
using CreateEvent = DriverFunction<"cuEventCreate", CUresult(CUevent*, unsigned)>;
using DestroyEvent = DriverFunction<"cuEventDestroy_v2", CUresult(CUevent)>;

// Lets further work in a context wait for all work that another one has now. Events of green
// contexts are the primary's.
CUresult let_wait(const Lease& lease, CUcontext context, CUcontext other) noexcept {
  CUevent done = nullptr;
  CUresult status = call_in(lease.table(), lease.memory_context(),
                            [&] { return CreateEvent::call(&done, CU_EVENT_DISABLE_TIMING); });
  if (status != CUDA_SUCCESS) return status;
  status = ContextRecords::call(other, done);
  if (status == CUDA_SUCCESS) status = ContextWaits::call(context, done);
  DestroyEvent::call(done);
  return status;
}

// A context of a lease means all of them: the threads of a tenant work in a green lease in contexts
// of their own, and know them by one handle.
CUresult record_lease(const Caller& caller, const Lease& lease, CUevent event) noexcept {
  CUcontext const here = own_context(caller, lease);
  CUresult status = CUDA_SUCCESS;
  lease.users().for_each_other(here, [&](CUcontext other) {
    if (status == CUDA_SUCCESS) status = let_wait(lease, here, other);
  });
  return status == CUDA_SUCCESS ? ContextRecords::call(here, event) : status;
}

CUresult wait_in_lease(GatedTenant& tenant, const char* function, const Lease& lease,
                       CUevent event) noexcept {
  if (lease.kind() == LeaseKind::shared) {
    tenant.log_once(function, "refused: in a shared lease, all plug-ins of the context would wait");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult status = CUDA_SUCCESS;
  lease.users().for_each_other(nullptr, [&](CUcontext each) {
    if (status == CUDA_SUCCESS) status = ContextWaits::call(each, event);
  });
  return status;
}

std::shared_ptr<Lease> lease_of(GatedTenant& tenant, CUcontext context) noexcept {
  return tenant.lease_meant(context);
}
std::shared_ptr<Lease> lease_of(GatedTenant& tenant, CUgreenCtx green) noexcept {
  return tenant.lease_with_green(green);
}

// The lease that is meant; null, and `status` says whether the caller may use the context.
template <typename Context>
std::shared_ptr<Lease> find_lease(const Caller& caller, const char* function, Kind kind,
                                  Context context, CUresult* status) noexcept {
  *status = CUDA_SUCCESS;
  std::shared_ptr<Lease> lease;
  if (caller.tenant != nullptr) lease = lease_of(*caller.tenant, context);
  if (lease == nullptr) *status = check_use(caller, function, kind, handle_value(context));
  return lease;
}

template <typename Real, Kind kind, typename Context>
CUresult context_records(Context context, CUevent event) noexcept {
  const Caller caller = enter_rule<Real>();
  CUresult status = CUDA_SUCCESS;
  const auto lease = find_lease(caller, Real::symbol, kind, context, &status);
  if (status == CUDA_SUCCESS) {
    status = check_use(caller, Real::symbol, Kind::event, handle_value(event));
  }
  if (status != CUDA_SUCCESS) return status;
  return lease != nullptr ? record_lease(caller, *lease, event) : Real::call(context, event);
}

template <typename Real, Kind kind, typename Context>
CUresult context_waits(Context context, CUevent event) noexcept {
  const Caller caller = enter_rule<Real>();
  CUresult status = CUDA_SUCCESS;
  const auto lease = find_lease(caller, Real::symbol, kind, context, &status);
  if (status == CUDA_SUCCESS) {
    status = check_use(caller, Real::symbol, Kind::event, handle_value(event), lent);
  }
  if (status != CUDA_SUCCESS) return status;
  return lease != nullptr ? wait_in_lease(*caller.tenant, Real::symbol, *lease, event)
                          : Real::call(context, event);
}

// ---- rows ---------------------------------------------------------------------------------------

constexpr bool often = true;

constexpr Use stream_at(std::size_t position) {
  return {position, Kind::stream};
}
constexpr Use memory_at(std::size_t position) {
  return {position, Kind::memory, lent};
}
constexpr Use memory_list(std::size_t position, std::size_t count_at) {
  return {position, Kind::memory, lent, count_at};
}

// An event that the host made may be lent to be waited for, and not to be recorded.
template <SymbolName name, std::size_t words>
using Records = Uses<name, words, Use{1, Kind::stream, false, is_one, often},
                     Use{0, Kind::event, false, is_one, often}>;
template <SymbolName name>
using WaitsForEvent = Uses<name, 3, Use{0, Kind::stream, false, is_one, often},
                           Use{1, Kind::event, lent, is_one, often}>;
template <SymbolName name, std::size_t words, Use... uses>
using OnStream = Uses<name, words, stream_at(0), uses...>;

constexpr RuleRow use_rows[] = {
    row<Records<"cuEventRecord", 2>>(),
    row<Records<"cuEventRecord_ptsz", 2>>(),
    row<Records<"cuEventRecordWithFlags", 3>>(),
    row<Records<"cuEventRecordWithFlags_ptsz", 3>>(),
    row<WaitsForEvent<"cuStreamWaitEvent">>(),
    row<WaitsForEvent<"cuStreamWaitEvent_ptsz">>(),

    row<OnStream<"cuStreamAttachMemAsync", 4, memory_at(1)>>(),
    row<OnStream<"cuStreamAttachMemAsync_ptsz", 4, memory_at(1)>>(),
    row<OnStream<"cuStreamBatchMemOp", 4>>(),
    row<OnStream<"cuStreamBatchMemOp_ptsz", 4>>(),
    row<OnStream<"cuStreamBatchMemOp_v2", 4>>(),
    row<OnStream<"cuStreamBatchMemOp_v2_ptsz", 4>>(),
    row<OnStream<"cuStreamCopyAttributes", 2>>(),
    row<OnStream<"cuStreamCopyAttributes_ptsz", 2>>(),
    row<OnStream<"cuStreamSetAttribute", 3>>(),
    row<OnStream<"cuStreamSetAttribute_ptsz", 3>>(),
    row<OnStream<"cuStreamWaitValue32", 4>>(),
    row<OnStream<"cuStreamWaitValue32_ptsz", 4>>(),
    row<OnStream<"cuStreamWaitValue32_v2", 4>>(),
    row<OnStream<"cuStreamWaitValue32_v2_ptsz", 4>>(),
    row<OnStream<"cuStreamWaitValue64", 4>>(),
    row<OnStream<"cuStreamWaitValue64_ptsz", 4>>(),
    row<OnStream<"cuStreamWaitValue64_v2", 4>>(),
    row<OnStream<"cuStreamWaitValue64_v2_ptsz", 4>>(),
    row<OnStream<"cuStreamWriteValue32", 4>>(),
    row<OnStream<"cuStreamWriteValue32_ptsz", 4>>(),
    row<OnStream<"cuStreamWriteValue32_v2", 4>>(),
    row<OnStream<"cuStreamWriteValue32_v2_ptsz", 4>>(),
    row<OnStream<"cuStreamWriteValue64", 4>>(),
    row<OnStream<"cuStreamWriteValue64_ptsz", 4>>(),
    row<OnStream<"cuStreamWriteValue64_v2", 4>>(),
    row<OnStream<"cuStreamWriteValue64_v2_ptsz", 4>>(),

    rule<ContextRecords, context_records<ContextRecords, Kind::context>>(),
    rule<ContextWaits, context_waits<ContextWaits, Kind::context>>(),
    rule<GreenRecords, context_records<GreenRecords, Kind::green_context>>(),
    rule<GreenWaits, context_waits<GreenWaits, Kind::green_context>>(),

    row<Uses<"cuMemAdvise", 4, memory_at(0)>>(),
    row<Uses<"cuMemAdvise_v2", 4, memory_at(0)>>(),
    row<Uses<"cuMemPrefetchAsync", 4, memory_at(0), stream_at(3)>>(),
    row<Uses<"cuMemPrefetchAsync_ptsz", 4, memory_at(0), stream_at(3)>>(),
    row<Uses<"cuMemPrefetchAsync_v2", 5, memory_at(0), stream_at(4)>>(),
    row<Uses<"cuMemPrefetchAsync_v2_ptsz", 5, memory_at(0), stream_at(4)>>(),
    row<Uses<"cuMemPrefetchBatchAsync", 8, memory_list(0, 2), stream_at(7)>>(),
    row<Uses<"cuMemPrefetchBatchAsync_ptsz", 8, memory_list(0, 2), stream_at(7)>>(),
    row<Uses<"cuMemDiscardBatchAsync", 5, memory_list(0, 2), stream_at(4)>>(),
    row<Uses<"cuMemDiscardBatchAsync_ptsz", 5, memory_list(0, 2), stream_at(4)>>(),
    row<Uses<"cuMemDiscardAndPrefetchBatchAsync", 8, memory_list(0, 2), stream_at(7)>>(),
    row<Uses<"cuMemDiscardAndPrefetchBatchAsync_ptsz", 8, memory_list(0, 2), stream_at(7)>>(),
    row<Uses<"cuPointerSetAttribute", 3, memory_at(2)>>(),
};

}  // namespace

constinit const std::span<const RuleRow> use_rules = use_rows;

}  // namespace ctxbroker::detail
