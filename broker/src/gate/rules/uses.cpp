// SPDX-License-Identifier: Apache-2.0
// Calls that hold up or change streams, events, contexts and memory: on what the caller does not
// hold they are refused. Launches, copies, memsets and queries are not guarded.
#include "context/guard.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

// ---- contexts -----------------------------------------------------------------------------------

using ContextWaits = DriverFunction<"cuCtxWaitEvent", CUresult(CUcontext, CUevent)>;
CUresult context_waits(CUcontext context, CUevent event) noexcept {
  const Caller caller = enter_rule<ContextWaits>();
  if (GatedTenant* const tenant = caller.tenant) {
    CUresult status =
        check_use(*tenant, ContextWaits::symbol, Kind::context, handle_value(context));
    if (status == CUDA_SUCCESS) {
      status = check_use(*tenant, ContextWaits::symbol, Kind::event, handle_value(event), lent);
    }
    if (status == CUDA_SUCCESS && is_of_shared_lease(*tenant, context)) {
      tenant->log_once(ContextWaits::symbol,
                       "refused: in a shared lease, all plug-ins of the context would wait");
      status = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (status != CUDA_SUCCESS) return status;
  }
  return ContextWaits::call(context, event);
}

using FromGreen = DriverFunction<"cuCtxFromGreenCtx", CUresult(CUcontext*, CUgreenCtx)>;
CUresult from_green(CUcontext* context, CUgreenCtx green) noexcept {
  const Caller caller = enter_rule<FromGreen>();
  const CUresult status = FromGreen::call(context, green);
  if (status == CUDA_SUCCESS && caller.tenant != nullptr) {
    note_member(Kind::green_context, handle_value(green), handle_value(*context));
  }
  return status;
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

    row<Uses<"cuCtxRecordEvent", 2, Use{0, Kind::context}, Use{1, Kind::event}>>(),
    rule<ContextWaits, context_waits>(),
    rule<FromGreen, from_green>(),
    row<Uses<"cuGreenCtxRecordEvent", 2, Use{0, Kind::green_context}, Use{1, Kind::event}>>(),
    row<Uses<"cuGreenCtxWaitEvent", 2, Use{0, Kind::green_context}, Use{1, Kind::event, lent}>>(),

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
