// SPDX-License-Identifier: Apache-2.0
// Questions whose answer is a context or belongs to one. A tenant gets one handle for its lease
// from all of them, and on every thread.
#include "context/guard.hpp"
#include "gate/shown.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

CUgreenCtx shown_to(const Caller& caller, CUgreenCtx green) noexcept {
  if (caller.tenant == nullptr || green == nullptr) return green;
  const std::shared_ptr<Lease> lease = caller.tenant->lease_with_green(green);
  return lease != nullptr ? lease->green() : green;
}
using detail::shown_to;

// It is asked so often, and is harmless, that it is not counted. Outside of guards the current
// context of a lease is always the first one, which the tenant knows. Where several tenants take
// turns, the caller's lease is made current first.
using GetCurrent = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;
CUresult get_current(CUcontext* context) noexcept {
  leave_abandoned();
  if (thread_state.innermost == nullptr && !thread_state.several_tenants) {
    return GetCurrent::call(context);
  }
  const Caller caller = calling();
  const CUresult status = GetCurrent::call(context);
  if (status == CUDA_SUCCESS) *context = shown_to(caller, *context);
  return status;
}

template <SymbolName name>
struct TellsContextOfStream {
  using Real = DriverFunction<name, CUresult(CUstream, CUcontext*)>;
  static CUresult call(CUstream stream, CUcontext* context) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(stream, context);
    if (status == CUDA_SUCCESS) *context = shown_to(caller, *context);
    return status;
  }
};

// It returns one of both. The other is null, and so may be the place for it.
template <SymbolName name>
struct TellsContextsOfStream {
  using Real = DriverFunction<name, CUresult(CUstream, CUcontext*, CUgreenCtx*)>;
  static CUresult call(CUstream stream, CUcontext* context, CUgreenCtx* green) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(stream, context, green);
    if (status != CUDA_SUCCESS) return status;
    if (context != nullptr) *context = shown_to(caller, *context);
    if (green != nullptr) *green = shown_to(caller, *green);
    return status;
  }
};

using GreenOfStream = DriverFunction<"cuStreamGetGreenCtx", CUresult(CUstream, CUgreenCtx*)>;
CUresult green_of_stream(CUstream stream, CUgreenCtx* green) noexcept {
  const Caller caller = enter_rule<GreenOfStream>();
  const CUresult status = GreenOfStream::call(stream, green);
  if (status == CUDA_SUCCESS) *green = shown_to(caller, *green);
  return status;
}

using FromGreen = DriverFunction<"cuCtxFromGreenCtx", CUresult(CUcontext*, CUgreenCtx)>;
CUresult from_green(CUcontext* context, CUgreenCtx green) noexcept {
  const Caller caller = enter_rule<FromGreen>();
  const CUresult status = FromGreen::call(context, green);
  if (status != CUDA_SUCCESS || caller.tenant == nullptr) return status;
  CUcontext const shown = shown_to(caller, *context);
  // One that the tenant has made itself is a part of its green context.
  if (shown == *context) note_member(Kind::green_context, handle_value(green), handle_value(shown));
  *context = shown;
  return status;
}

template <SymbolName name, bool per_thread = false>
struct TellsFlagsOfStream {
  using Real = DriverFunction<name, CUresult(CUstream, unsigned*)>;
  static CUresult call(CUstream stream, unsigned* flags) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(stream, flags);
    if (status == CUDA_SUCCESS && *flags != CU_STREAM_DEFAULT &&
        is_default_stream(stream, per_thread) && is_in_lease(caller)) {
      *flags = CU_STREAM_DEFAULT;
    }
    return status;
  }
};

// Null: of the current context.
using GetId = DriverFunction<"cuCtxGetId", CUresult(CUcontext, unsigned long long*)>;
CUresult get_id(CUcontext context, unsigned long long* id) noexcept {
  const Caller caller = enter_rule<GetId>();
  if (caller.tenant == nullptr) return GetId::call(context, id);
  return GetId::call(shown_to(caller, context != nullptr ? context : current_context()), id);
}

using GetGreenId = DriverFunction<"cuGreenCtxGetId", CUresult(CUgreenCtx, unsigned long long*)>;
CUresult get_green_id(CUgreenCtx green, unsigned long long* id) noexcept {
  const Caller caller = enter_rule<GetGreenId>();
  if (caller.tenant == nullptr) return GetGreenId::call(green, id);
  if (green == nullptr) {
    const std::shared_ptr<Lease> lease = caller.tenant->lease_meant(current_context());
    if (lease != nullptr) green = lease->green();
  }
  return GetGreenId::call(shown_to(caller, green), id);
}

constexpr RuleRow handle_rows[] = {
    rule<GetCurrent, get_current>(),
    row<TellsContextOfStream<"cuStreamGetCtx">>(),
    row<TellsContextOfStream<"cuStreamGetCtx_ptsz">>(),
    row<TellsContextsOfStream<"cuStreamGetCtx_v2">>(),
    row<TellsContextsOfStream<"cuStreamGetCtx_v2_ptsz">>(),
    rule<GreenOfStream, green_of_stream>(),
    row<TellsFlagsOfStream<"cuStreamGetFlags">>(),
    row<TellsFlagsOfStream<"cuStreamGetFlags_ptsz", true>>(),
    rule<FromGreen, from_green>(),
    rule<GetId, get_id>(),
    rule<GetGreenId, get_green_id>(),
};

}  // namespace

constinit const std::span<const RuleRow> handle_rules = handle_rows;

}  // namespace ctxbroker::detail
