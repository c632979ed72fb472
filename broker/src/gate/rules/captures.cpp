// SPDX-License-Identifier: Apache-2.0
// Captures of streams, which make graphs. A tenant captures its own streams only.
#include <algorithm>
#include <new>
#include <vector>

#include "context/guard.hpp"
#include "context/open_captures.hpp"
#include "gate/shown.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using IsCapturing =
    DriverFunction<"cuStreamIsCapturing", CUresult(CUstream, CUstreamCaptureStatus*)>;
using ContextOf = DriverFunction<"cuStreamGetCtx", CUresult(CUstream, CUcontext*)>;

// ---- captures that no guard ends ----------------------------------------------------------------

// The guard ends captures that its code leaves open. Others end with the tenant, and the host's
// with the host. A tenant's per-thread stream is known to its own thread only, and is left to that.
CUresult begun(const Caller& caller, CUstream stream, CUresult status) noexcept {
  if (status != CUDA_SUCCESS) return status;
  CUcontext context = nullptr;
  if (!ContextOf::is_bound() || ContextOf::call(stream, &context) != CUDA_SUCCESS) {
    context = current_context();
  }
  if (caller.guarded) {
    stream_capture_begun(stream, context);
    return status;
  }
  const bool is_left_to_thread = caller.tenant == nullptr || stream == CU_STREAM_PER_THREAD;
  current_may_have_changed();  // the next guard has to look at the mode
  OpenCaptures::all().begun(is_left_to_thread ? nullptr : &caller.tenant->main(), stream, context);
  return status;
}

// ---- rules -----------------------------------------------------------------------------------

constexpr bool per_thread = true;

// Returns the stream that the handle means, which depends on the form of the call.
template <bool per_thread_default>
CUstream named(CUstream stream) noexcept {
  return per_thread_default && stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

CUresult check_stream(const Caller& caller, const char* function, CUstream stream) noexcept {
  return check_use(caller, function, Kind::stream, handle_value(stream));
}

// The default stream of a green context can be captured, and that of a primary cannot.
CUresult check_begin(const Caller& caller, const char* function, CUstream stream,
                     bool ptsz) noexcept {
  if (is_default_stream(stream, ptsz) && is_in_lease(caller)) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return check_stream(caller, function, stream);
}

// While a capture in global mode is open, calls that are unsafe in a capture, such as allocations,
// fail on every thread, and make the capture invalid. In thread-local mode they fail on this thread
// alone. So neither a tenant's capture nor the host's meets what others do.
CUstreamCaptureMode narrowed(CUstreamCaptureMode mode) noexcept {
  return any_gated_tenant() && mode == CU_STREAM_CAPTURE_MODE_GLOBAL
             ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
             : mode;
}

template <SymbolName name>
using WithMode = DriverFunction<name, CUresult(CUstream, CUstreamCaptureMode)>;

// The first version of the call has no mode, which means global.
template <SymbolName name, SymbolName with_mode, bool ptsz = false>
struct BeginsGlobalCapture {
  using Real = DriverFunction<name, CUresult(CUstream)>;
  static CUresult call(CUstream stream) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult refused = check_begin(caller, Real::symbol, stream, ptsz);
    if (refused != CUDA_SUCCESS) return refused;
    const OpenCaptures::Beginning beginning;
    return begun(caller, named<ptsz>(stream),
                 any_gated_tenant()
                     ? WithMode<with_mode>::call(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
                     : Real::call(stream));
  }
};

template <SymbolName name, bool ptsz = false>
struct BeginsCapture {
  using Real = WithMode<name>;
  static CUresult call(CUstream stream, CUstreamCaptureMode mode) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult refused = check_begin(caller, Real::symbol, stream, ptsz);
    if (refused != CUDA_SUCCESS) return refused;
    const OpenCaptures::Beginning beginning;
    return begun(caller, named<ptsz>(stream), Real::call(stream, narrowed(mode)));
  }
};

template <SymbolName name, bool ptsz = false>
struct BeginsCaptureToGraph {
  using Real = DriverFunction<name, CUresult(CUstream, CUgraph, const void*, const void*,
                                             std::size_t, CUstreamCaptureMode)>;
  static CUresult call(CUstream stream, CUgraph graph, const void* nodes, const void* edges,
                       std::size_t count, CUstreamCaptureMode mode) noexcept {
    const Caller caller = enter_rule<Real>();
    CUresult refused = check_begin(caller, Real::symbol, stream, ptsz);
    if (refused == CUDA_SUCCESS && caller.tenant != nullptr) {
      refused = check_use(*caller.tenant, Real::symbol, Kind::graph, handle_value(graph));
    }
    if (refused != CUDA_SUCCESS) return refused;
    const OpenCaptures::Beginning beginning;
    return begun(caller, named<ptsz>(stream),
                 Real::call(stream, graph, nodes, edges, count, narrowed(mode)));
  }
};

// The driver calls the function while the stream is captured.
template <SymbolName name, bool ptsz = false>
struct BeginsRecapture {
  using Real = DriverFunction<name, CUresult(CUstream, CUstreamCaptureMode, CUgraph, void*, void*)>;
  static CUresult call(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void* function,
                       void* data) noexcept {
    const Caller caller = enter_rule<Real>();
    CUresult refused = check_begin(caller, Real::symbol, stream, ptsz);
    if (refused == CUDA_SUCCESS && caller.tenant != nullptr) {
      refused = check_use(*caller.tenant, Real::symbol, Kind::graph, handle_value(graph));
    }
    if (refused != CUDA_SUCCESS) return refused;
    PendingCalls* const calls =
        caller.tenant != nullptr && function != nullptr ? &caller.tenant->pending_calls() : nullptr;
    if (calls != nullptr) calls->mark_graph();
    const OpenCaptures::Beginning beginning;  // the driver calls the function meanwhile
    const CUresult status = Real::call(stream, narrowed(mode), graph, function, data);
    if (calls != nullptr && status != CUDA_SUCCESS) calls->unmark_graph();
    return begun(caller, named<ptsz>(stream), status);
  }
};

// A capture has ended for which the tenant may hold no graph, because the driver goes on capturing
// until it is asked for the graph. One that the capture only continued is the tenant's already.
CUresult refuse_graph(GatedTenant& tenant, CUgraph& graph) noexcept {
  if (ledger().holds(tenant.holder(), Kind::graph, handle_value(graph))) return CUDA_SUCCESS;
  static_cast<void>(destroy_graph(tenant, graph));
  graph = nullptr;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The driver also ends a capture that it refuses to end: one that is invalid, has streams that were
// not joined, or was begun on another thread. So it is asked.
void forget_if_ended(CUstream stream, CUresult status) noexcept {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool is_known =
      IsCapturing::is_bound() && IsCapturing::call(stream, &capture) == CUDA_SUCCESS;
  if (is_known ? capture == CU_STREAM_CAPTURE_STATUS_NONE : status == CUDA_SUCCESS) {
    OpenCaptures::all().ended(stream);
  }
}

// The graph is the call's second parameter.
template <SymbolName name, bool ptsz = false>
struct EndsCapture {
  using Real = DriverFunction<name, CUresult(CUstream, CUgraph*)>;
  static CUresult call(CUstream stream, CUgraph* graph) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult refused = check_stream(caller, Real::symbol, stream);
    if (refused != CUDA_SUCCESS) return refused;
    if (caller.tenant == nullptr) {
      const CUresult status = Real::call(stream, graph);
      forget_if_ended(named<ptsz>(stream), status);
      return status;
    }
    bool ended = false;
    const auto end = [&] {
      ended = true;
      const CUresult status = Real::call(stream, graph);
      if (status == CUDA_SUCCESS && graph != nullptr) forget_member(handle_value(*graph));
      return status;
    };
    CUresult status = make_held(*caller.tenant, Kind::graph, graph, 0, end);
    if (!ended) {
      status = end();
      if (status == CUDA_SUCCESS && graph != nullptr) status = refuse_graph(*caller.tenant, *graph);
    }
    forget_if_ended(named<ptsz>(stream), status);
    return status;
  }
};

// A capture's graph and its last nodes, which the caller may change.
template <SymbolName name, bool ptsz, typename... Edges>
struct TellsCapture {
  using Nodes = const CUgraphNode*;
  using Real = DriverFunction<name, CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                             CUgraph*, Nodes*, Edges..., std::size_t*)>;
  static CUresult call(CUstream stream, CUstreamCaptureStatus* capture, cuuint64_t* id,
                       CUgraph* graph, Nodes* nodes, Edges... edges, std::size_t* count) noexcept {
    const Caller caller = enter_rule<Real>();
    CUgraph told = nullptr;
    if (graph == nullptr && nodes != nullptr && caller.tenant != nullptr) graph = &told;
    const CUresult status = Real::call(stream, capture, id, graph, nodes, edges..., count);
    const std::uint64_t whole = handle_value(named<ptsz>(stream));
    if (status != CUDA_SUCCESS || caller.tenant == nullptr || graph == nullptr ||
        capture == nullptr || *capture != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
        !is_known_own(*caller.tenant, Kind::stream, whole)) {
      return status;
    }
    // A graph of the tenant that the capture adds to is in the ledger already.
    if (!ledger().holds(caller.tenant->holder(), Kind::graph, handle_value(*graph))) {
      note_member(Kind::stream, whole, handle_value(*graph));
    }
    if (nodes != nullptr && count != nullptr) {
      note_members(Kind::graph, handle_value(*graph), *nodes, *count);
    }
    return status;
  }
};

using Edges = const void**;

constexpr RuleRow capture_rows[] = {
    row<BeginsGlobalCapture<"cuStreamBeginCapture", "cuStreamBeginCapture_v2">>(),
    row<BeginsGlobalCapture<"cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz",
                            per_thread>>(),
    row<BeginsCapture<"cuStreamBeginCapture_v2">>(),
    row<BeginsCapture<"cuStreamBeginCapture_v2_ptsz", per_thread>>(),
    row<BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph">>(),
    row<BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph_ptsz", per_thread>>(),
    row<BeginsRecapture<"cuStreamBeginRecaptureToGraph">>(),
    row<BeginsRecapture<"cuStreamBeginRecaptureToGraph_ptsz", per_thread>>(),
    row<Uses<"cuStreamBeginCaptureToCig", 2, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamBeginCaptureToCig_ptsz", 2, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamEndCaptureToCig", 1, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamEndCaptureToCig_ptsz", 1, Use{0, Kind::stream}>>(),
    row<EndsCapture<"cuStreamEndCapture">>(),
    row<EndsCapture<"cuStreamEndCapture_ptsz", per_thread>>(),
    row<Uses<"cuStreamGetCaptureInfo", 3>>(),
    row<Uses<"cuStreamGetCaptureInfo_ptsz", 3>>(),
    row<TellsCapture<"cuStreamGetCaptureInfo_v2", false>>(),
    row<TellsCapture<"cuStreamGetCaptureInfo_v2_ptsz", per_thread>>(),
    row<TellsCapture<"cuStreamGetCaptureInfo_v3", false, Edges>>(),
    row<TellsCapture<"cuStreamGetCaptureInfo_v3_ptsz", per_thread, Edges>>(),
    row<Uses<"cuStreamUpdateCaptureDependencies", 4, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamUpdateCaptureDependencies_ptsz", 4, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamUpdateCaptureDependencies_v2", 5, Use{0, Kind::stream}>>(),
    row<Uses<"cuStreamUpdateCaptureDependencies_v2_ptsz", 5, Use{0, Kind::stream}>>(),
};

}  // namespace

namespace {

// The tenant's streams with a capture that it has left open. A stream that was lent may have ended.
std::vector<CUstream> own_streams_left(GatedTenant& tenant) noexcept {
  try {
    std::vector<CUstream> left = OpenCaptures::all().left_by(&tenant.main());
    std::erase_if(left, [&](CUstream stream) {
      return !is_known_own(tenant, Kind::stream, handle_value(stream));
    });
    return left;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

void end_open_captures(GatedTenant& tenant) noexcept {
  using EndCapture = DriverFunction<"cuStreamEndCapture", CUresult(CUstream, CUgraph*)>;
  using DestroyGraph = DriverFunction<"cuGraphDestroy", CUresult(CUgraph)>;
  int left = 0;
  const std::vector<CUstream> own = own_streams_left(tenant);
  OpenCaptures::all().end_left(&tenant.main(), [&](CUstream stream) {
    if (std::find(own.begin(), own.end(), stream) == own.end()) return;
    CUgraph graph = nullptr;
    // Another thread may have begun it. The driver says so, and has ended it all the same.
    const CUresult status = EndCapture::call(stream, &graph);
    if (status == CUDA_ERROR_ILLEGAL_STATE) return;  // it has no capture
    if (graph != nullptr) DestroyGraph::call(graph);
    ++left;
  });
  for (; left > 0; --left) {
    tenant.strike("cuStreamBeginCapture", "left the capture of a stream open; it was ended");
  }
}

constinit const std::span<const RuleRow> capture_rules = capture_rows;

}  // namespace ctxbroker::detail
