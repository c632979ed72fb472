// Code, streams, events and graphs: what a tenant makes is counted, and only its holder ends it.
#include "context/guard.hpp"
#include "gate/held.hpp"
#include "gate/policies.hpp"

namespace ctxbroker::detail {
namespace {

template <SymbolName name, Kind kind, typename Handle, typename... Rest>
using Counted = Makes<name, kind, no_bytes, Handle, Rest...>;

template <SymbolName name>
using LoadsLibrary = Counted<name, Kind::library, CUlibrary, const void*, CUjit_option*, void**,
                             unsigned, CUlibraryOption*, void**, unsigned>;
template <SymbolName name>
using Instantiates =
    Counted<name, Kind::graph_exec, CUgraphExec, CUgraph, CUgraphNode*, char*, std::size_t>;
template <SymbolName name>
using InstantiatesWithParams =
    Counted<name, Kind::graph_exec, CUgraphExec, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*>;

// The graph comes out behind the stream.
template <SymbolName name>
struct EndsCapture {
  using Real = DriverFunction<name, CUresult(CUstream, CUgraph*)>;
  static CUresult call(CUstream stream, CUgraph* graph) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr) return Real::call(stream, graph);
    const CUresult status =
        make_held(*caller.tenant, Kind::graph, graph, 0, [&] { return Real::call(stream, graph); });
    // What was invalid has ended all the same.
    if (status == CUDA_SUCCESS || status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
      stream_capture_ended(stream);
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// A capture in global mode makes calls of every other thread fail that are unsafe in a capture,
// such as allocations. The thread's own calls are watched all the same.
CUstreamCaptureMode narrowed(const Caller& caller, CUstreamCaptureMode mode) noexcept {
  return caller.tenant != nullptr && mode == CU_STREAM_CAPTURE_MODE_GLOBAL
             ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
             : mode;
}

// The guard ends what its code leaves open.
CUresult begun(const Caller& caller, CUstream stream, CUresult status) noexcept {
  if (status == CUDA_SUCCESS && caller.guarded) stream_capture_begun(stream);
  return status;
}

template <SymbolName name>
using WithMode = DriverFunction<name, CUresult(CUstream, CUstreamCaptureMode)>;

// The first form has no mode, which means global.
template <SymbolName name, SymbolName with_mode>
struct BeginsGlobalCapture {
  using Real = DriverFunction<name, CUresult(CUstream)>;
  static CUresult call(CUstream stream) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr) return Real::call(stream);
    return begun(caller, stream,
                 WithMode<with_mode>::call(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

template <SymbolName name>
struct BeginsCapture {
  using Real = WithMode<name>;
  static CUresult call(CUstream stream, CUstreamCaptureMode mode) noexcept {
    const Caller caller = enter_policy<Real>();
    return begun(caller, stream, Real::call(stream, narrowed(caller, mode)));
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

template <SymbolName name>
struct BeginsCaptureToGraph {
  using Real = DriverFunction<name, CUresult(CUstream, CUgraph, const void*, const void*,
                                             std::size_t, CUstreamCaptureMode)>;
  static CUresult call(CUstream stream, CUgraph graph, const void* nodes, const void* edges,
                       std::size_t count, CUstreamCaptureMode mode) noexcept {
    const Caller caller = enter_policy<Real>();
    return begun(caller, stream,
                 Real::call(stream, graph, nodes, edges, count, narrowed(caller, mode)));
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

constexpr PolicyRow rows[] = {
    Counted<"cuModuleLoad", Kind::module, CUmodule, const char*>::row(),
    Counted<"cuModuleLoadData", Kind::module, CUmodule, const void*>::row(),
    Counted<"cuModuleLoadDataEx", Kind::module, CUmodule, const void*, unsigned, CUjit_option*,
            void**>::row(),
    Counted<"cuModuleLoadFatBinary", Kind::module, CUmodule, const void*>::row(),
    Ends<"cuModuleUnload", Kind::module, CUmodule>::row(),
    LoadsLibrary<"cuLibraryLoadData">::row(),
    LoadsLibrary<"cuLibraryLoadFromFile">::row(),
    Ends<"cuLibraryUnload", Kind::library, CUlibrary>::row(),

    Counted<"cuStreamCreate", Kind::stream, CUstream, unsigned>::row(),
    Counted<"cuStreamCreateWithPriority", Kind::stream, CUstream, unsigned, int>::row(),
    Counted<"cuGreenCtxStreamCreate", Kind::stream, CUstream, CUgreenCtx, unsigned, int>::row(),
    Ends<"cuStreamDestroy", Kind::stream, CUstream>::row(),
    Ends<"cuStreamDestroy_v2", Kind::stream, CUstream>::row(),
    Counted<"cuEventCreate", Kind::event, CUevent, unsigned>::row(),
    Counted<"cuEventCreateFromEGLSync", Kind::event, CUevent, void*, unsigned>::row(),
    Counted<"cuIpcOpenEventHandle", Kind::event, CUevent, CUipcEventHandle>::row(),
    Ends<"cuEventDestroy", Kind::event, CUevent>::row(),
    Ends<"cuEventDestroy_v2", Kind::event, CUevent>::row(),

    Counted<"cuGraphCreate", Kind::graph, CUgraph, unsigned>::row(),
    Counted<"cuGraphClone", Kind::graph, CUgraph, CUgraph>::row(),
    EndsCapture<"cuStreamEndCapture">::row(),
    EndsCapture<"cuStreamEndCapture_ptsz">::row(),
    Ends<"cuGraphDestroy", Kind::graph, CUgraph>::row(),
    Instantiates<"cuGraphInstantiate">::row(),
    Instantiates<"cuGraphInstantiate_v2">::row(),
    Counted<"cuGraphInstantiateWithFlags", Kind::graph_exec, CUgraphExec, CUgraph,
            unsigned long long>::row(),
    InstantiatesWithParams<"cuGraphInstantiateWithParams">::row(),
    InstantiatesWithParams<"cuGraphInstantiateWithParams_ptsz">::row(),
    Ends<"cuGraphExecDestroy", Kind::graph_exec, CUgraphExec>::row(),

    BeginsGlobalCapture<"cuStreamBeginCapture", "cuStreamBeginCapture_v2">::row(),
    BeginsGlobalCapture<"cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz">::row(),
    BeginsCapture<"cuStreamBeginCapture_v2">::row(),
    BeginsCapture<"cuStreamBeginCapture_v2_ptsz">::row(),
    BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph">::row(),
    BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph_ptsz">::row(),
};

}  // namespace

std::span<const PolicyRow> object_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
