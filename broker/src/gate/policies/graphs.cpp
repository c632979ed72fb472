// Graphs, and captures, which make graphs. A tenant's graphs and the memory that they allocate are
// counted, and only their holder ends them.
#include "context/guard.hpp"
#include "gate/graph_memory.hpp"
#include "gate/held.hpp"
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

template <SymbolName name, typename... Rest>
struct Instantiates {
  using Real = DriverFunction<name, CUresult(CUgraphExec*, CUgraph, Rest...)>;
  static CUresult call(CUgraphExec* out, CUgraph graph, Rest... rest) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr) return Real::call(out, graph, rest...);
    const CUresult status = make_held(*caller.tenant, Kind::graph_exec, out, 0,
                                      [&] { return Real::call(out, graph, rest...); });
    if (status == CUDA_SUCCESS && out != nullptr) {
      pass_on_graph_memory(handle_value(graph), handle_value(*out));
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// The memory that it names is forgotten with it, unless a launch has allocated it.
template <SymbolName name, Kind kind, typename Handle>
struct EndsGraph {
  using Real = DriverFunction<name, CUresult(Handle)>;
  static CUresult call(Handle graph) noexcept {
    const Caller caller = enter_policy<Real>();
    if (graph == nullptr || !any_gated_tenant()) return Real::call(graph);
    const std::uint64_t value = handle_value(graph);
    const auto end_of = [&](GatedTenant& tenant) {
      std::vector<std::uint64_t> addresses = take_graph_memory(kind, value);
      const CUresult status = Real::call(graph);
      if (status == CUDA_SUCCESS) {
        forget_unallocated(tenant, addresses);
      } else {
        put_graph_memory_back(kind, value, std::move(addresses));
      }
      return status;
    };
    if (caller.tenant != nullptr) {
      return end_held(*caller.tenant, Real::symbol, kind, value,
                      [&] { return end_of(*caller.tenant); });
    }
    const auto held = ledger().find(kind, value);
    GatedTenant* const tenant = held ? gated_tenant_of(held->holder.tenant) : nullptr;
    return end_by_host(kind, value,
                       [&] { return tenant != nullptr ? end_of(*tenant) : Real::call(graph); });
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// A node that allocates. The driver chooses the address at once, and the memory counts from then
// on, because nobody sees the launches.
template <typename Add>
CUresult allocated(GatedTenant& tenant, CUgraph graph, std::uint64_t bytes, CUdeviceptr* address,
                   Add&& add) noexcept {
  return make_held(tenant, Kind::graph_memory, address, bytes, [&] {
    const CUresult status = add();
    try {
      if (status == CUDA_SUCCESS) name_graph_memory(handle_value(graph), *address);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as what cannot be entered
    }
    return status;
  });
}

bool is_own(const GatedTenant& tenant, CUdeviceptr address) noexcept {
  return ledger().holds(tenant.holder(), Kind::graph_memory, address);
}

using AddAllocation =
    DriverFunction<"cuGraphAddMemAllocNode", CUresult(CUgraphNode*, CUgraph, const CUgraphNode*,
                                                      std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*)>;
CUresult add_allocation(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                        std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) noexcept {
  const Caller caller = enter_policy<AddAllocation>();
  const auto add = [&] { return AddAllocation::call(node, graph, after, count, parameters); };
  if (caller.tenant == nullptr || parameters == nullptr) return add();
  return allocated(*caller.tenant, graph, parameters->bytesize, &parameters->dptr, add);
}

using AddFreeing =
    DriverFunction<"cuGraphAddMemFreeNode",
                   CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr)>;
CUresult add_freeing(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                     CUdeviceptr address) noexcept {
  const Caller caller = enter_policy<AddFreeing>();
  if (caller.tenant != nullptr && !is_own(*caller.tenant, address)) {
    return refuse_end(*caller.tenant, AddFreeing::symbol, Kind::graph_memory, address);
  }
  return AddFreeing::call(node, graph, after, count, address);
}

// A node of any kind.
template <SymbolName name, typename... Rest>
struct AddsNode {
  using Real = DriverFunction<name, CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, Rest...,
                                             CUgraphNodeParams*)>;
  static CUresult call(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, Rest... rest,
                       CUgraphNodeParams* parameters) noexcept {
    const Caller caller = enter_policy<Real>();
    const auto add = [&] { return Real::call(node, graph, after, rest..., parameters); };
    if (caller.tenant == nullptr || parameters == nullptr) return add();
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      return allocated(*caller.tenant, graph, parameters->alloc.bytesize, &parameters->alloc.dptr,
                       add);
    }
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
        !is_own(*caller.tenant, parameters->free.dptr)) {
      return refuse_end(*caller.tenant, Real::symbol, Kind::graph_memory, parameters->free.dptr);
    }
    return add();
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// The graph is the call's second parameter.
template <SymbolName name>
struct EndsCapture {
  using Real = DriverFunction<name, CUresult(CUstream, CUgraph*)>;
  static CUresult call(CUstream stream, CUgraph* graph) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr) return Real::call(stream, graph);
    const CUresult status =
        make_held(*caller.tenant, Kind::graph, graph, 0, [&] { return Real::call(stream, graph); });
    // A capture that was invalid has ended too.
    if (status == CUDA_SUCCESS || status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
      stream_capture_ended(stream);
    }
    return status;
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

// While a capture in global mode is open, calls that are unsafe in a capture, such as allocations,
// fail on every thread. In thread-local mode they fail on this thread alone.
CUstreamCaptureMode narrowed(const Caller& caller, CUstreamCaptureMode mode) noexcept {
  return caller.tenant != nullptr && mode == CU_STREAM_CAPTURE_MODE_GLOBAL
             ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
             : mode;
}

// The guard ends captures that its code leaves open.
CUresult begun(const Caller& caller, CUstream stream, CUresult status) noexcept {
  if (status == CUDA_SUCCESS && caller.guarded) stream_capture_begun(stream);
  return status;
}

template <SymbolName name>
using WithMode = DriverFunction<name, CUresult(CUstream, CUstreamCaptureMode)>;

// The first version of the call has no mode, which means global.
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
    Makes<"cuGraphCreate", Kind::graph, no_bytes, CUgraph, unsigned>::row(),
    Makes<"cuGraphClone", Kind::graph, no_bytes, CUgraph, CUgraph>::row(),
    EndsCapture<"cuStreamEndCapture">::row(),
    EndsCapture<"cuStreamEndCapture_ptsz">::row(),
    EndsGraph<"cuGraphDestroy", Kind::graph, CUgraph>::row(),
    Instantiates<"cuGraphInstantiate", CUgraphNode*, char*, std::size_t>::row(),
    Instantiates<"cuGraphInstantiate_v2", CUgraphNode*, char*, std::size_t>::row(),
    Instantiates<"cuGraphInstantiateWithFlags", unsigned long long>::row(),
    Instantiates<"cuGraphInstantiateWithParams", void*>::row(),
    Instantiates<"cuGraphInstantiateWithParams_ptsz", void*>::row(),
    EndsGraph<"cuGraphExecDestroy", Kind::graph_exec, CUgraphExec>::row(),
    policy<AddAllocation, add_allocation>(),
    policy<AddFreeing, add_freeing>(),
    AddsNode<"cuGraphAddNode", std::size_t>::row(),
    AddsNode<"cuGraphAddNode_v2", const void*, std::size_t>::row(),

    BeginsGlobalCapture<"cuStreamBeginCapture", "cuStreamBeginCapture_v2">::row(),
    BeginsGlobalCapture<"cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz">::row(),
    BeginsCapture<"cuStreamBeginCapture_v2">::row(),
    BeginsCapture<"cuStreamBeginCapture_v2_ptsz">::row(),
    BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph">::row(),
    BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph_ptsz">::row(),
    unguarded<DriverFunction<"cuPointerGetAttribute",
                             CUresult(void*, CUpointer_attribute, CUdeviceptr)>>(),
};

}  // namespace

std::span<const PolicyRow> graph_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
