// Graphs, and captures, which make graphs. A tenant's graphs and the memory that they allocate are
// counted, and only their holder ends them.
#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "context/guard.hpp"
#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

using PointerAttribute =
    DriverFunction<"cuPointerGetAttribute", CUresult(void*, CUpointer_attribute, CUdeviceptr)>;

// Memory that graphs allocate for themselves, by graph. The driver chooses its address when the
// node is added; then the graph names it, and so does each executable graph made of that. A launch
// allocates the memory. Where no node frees it, it outlives the graphs.
using GraphMemory = std::map<std::pair<Kind, std::uint64_t>, std::vector<std::uint64_t>>;

// Of the process, as handles are.
struct Names {
  std::mutex mutex;
  GraphMemory memory;

  static Names& one() {
    static auto* const names = new Names;  // threads of plug-ins may free until the process ends
    return *names;
  }
  bool has(std::uint64_t address) const noexcept {
    return std::any_of(memory.begin(), memory.end(), [&](const auto& graph) {
      return std::find(graph.second.begin(), graph.second.end(), address) != graph.second.end();
    });
  }
};

bool is_allocated(std::uint64_t address) noexcept {
  unsigned type = 0;
  return PointerAttribute::call(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS;
}

void forget(GatedTenant& tenant, std::uint64_t address) noexcept {
  const auto held = ledger().remove(Kind::graph_memory, address, tenant.holder());
  if (held) stop_counting(*held);
}

// An executable graph was made of a graph, and names what that names.
void pass_on_graph_memory(std::uint64_t graph, std::uint64_t exec) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  const auto found = names.memory.find({Kind::graph, graph});
  if (found == names.memory.end()) return;
  try {
    names.memory[{Kind::graph_exec, exec}] = found->second;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): freed memory may be forgotten
  }                                  // too early, and is the driver's to end
}

// Ends a graph. The names are taken first, because the handle may be another graph's as soon as it
// has ended. Then what no graph names and no launch has allocated is forgotten.
template <typename End>
CUresult end_graph(GatedTenant& tenant, Kind kind, std::uint64_t graph, End&& end) noexcept {
  Names& names = Names::one();
  GraphMemory::node_type taken;
  {
    const std::lock_guard lock(names.mutex);
    taken = names.memory.extract({kind, graph});
  }
  const CUresult status = end();
  if (taken.empty()) return status;
  const std::lock_guard lock(names.mutex);
  if (status != CUDA_SUCCESS) {
    names.memory.insert(std::move(taken));
    return status;
  }
  for (const std::uint64_t address : taken.mapped()) {
    if (!names.has(address) && !is_allocated(address)) forget(tenant, address);
  }
  return status;
}

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
      return end_graph(tenant, kind, value, [&] { return Real::call(graph); });
    };
    if (caller.tenant != nullptr) {
      return end_held(*caller.tenant, Real::symbol, kind, value,
                      [&] { return end_of(*caller.tenant); });
    }
    const auto held = ledger().find(kind, value);
    GatedTenant* const tenant = held ? gated_tenant_of(held->holder.tenant) : nullptr;
    return end_by_host(caller, Real::symbol, kind, value,
                       [&] { return tenant != nullptr ? end_of(*tenant) : Real::call(graph); });
  }
};

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
  return make_graph_memory(*caller.tenant, graph, parameters->bytesize, &parameters->dptr, add);
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
  if (caller.tenant == nullptr) {
    const auto refused = refuse_nobody(caller, AddFreeing::symbol, Kind::graph_memory, address);
    if (refused) return *refused;
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
      return make_graph_memory(*caller.tenant, graph, parameters->alloc.bytesize,
                               &parameters->alloc.dptr, add);
    }
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
        !is_own(*caller.tenant, parameters->free.dptr)) {
      return refuse_end(*caller.tenant, Real::symbol, Kind::graph_memory, parameters->free.dptr);
    }
    return add();
  }
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
};

template <SymbolName name>
struct BeginsCapture {
  using Real = WithMode<name>;
  static CUresult call(CUstream stream, CUstreamCaptureMode mode) noexcept {
    const Caller caller = enter_policy<Real>();
    return begun(caller, stream, Real::call(stream, narrowed(caller, mode)));
  }
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
};

constexpr PolicyRow graph_rows[] = {
    row<Makes<"cuGraphCreate", Kind::graph, no_bytes, CUgraph, unsigned>>(),
    row<Makes<"cuGraphClone", Kind::graph, no_bytes, CUgraph, CUgraph>>(),
    row<EndsCapture<"cuStreamEndCapture">>(),
    row<EndsCapture<"cuStreamEndCapture_ptsz">>(),
    row<EndsGraph<"cuGraphDestroy", Kind::graph, CUgraph>>(),
    row<Instantiates<"cuGraphInstantiate", CUgraphNode*, char*, std::size_t>>(),
    row<Instantiates<"cuGraphInstantiate_v2", CUgraphNode*, char*, std::size_t>>(),
    row<Instantiates<"cuGraphInstantiateWithFlags", unsigned long long>>(),
    row<Instantiates<"cuGraphInstantiateWithParams", void*>>(),
    row<Instantiates<"cuGraphInstantiateWithParams_ptsz", void*>>(),
    row<EndsGraph<"cuGraphExecDestroy", Kind::graph_exec, CUgraphExec>>(),
    policy<AddAllocation, add_allocation>(),
    policy<AddFreeing, add_freeing>(),
    row<AddsNode<"cuGraphAddNode", std::size_t>>(),
    row<AddsNode<"cuGraphAddNode_v2", const void*, std::size_t>>(),

    row<BeginsGlobalCapture<"cuStreamBeginCapture", "cuStreamBeginCapture_v2">>(),
    row<BeginsGlobalCapture<"cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz">>(),
    row<BeginsCapture<"cuStreamBeginCapture_v2">>(),
    row<BeginsCapture<"cuStreamBeginCapture_v2_ptsz">>(),
    row<BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph">>(),
    row<BeginsCaptureToGraph<"cuStreamBeginCaptureToGraph_ptsz">>(),
    unguarded<PointerAttribute>(),
};

}  // namespace

void name_graph_memory(std::uint64_t graph, std::uint64_t address) {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  names.memory[{Kind::graph, graph}].push_back(address);
}

void forget_freed(GatedTenant& tenant, std::uint64_t address) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  if (!names.has(address)) forget(tenant, address);
}

bool may_be_allocated(const GatedTenant& tenant, std::uint64_t address) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  bool named = false;
  for (const auto& [graph, memory] : names.memory) {
    if (std::find(memory.begin(), memory.end(), address) == memory.end()) continue;
    if (ledger().holds(tenant.holder(), graph.first, graph.second)) return true;
    named = true;
  }
  return !named;
}

void forget_graph_memory(Kind kind, std::uint64_t graph) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  names.memory.erase({kind, graph});
}

std::span<const PolicyRow> graph_policies() noexcept {
  return graph_rows;
}

}  // namespace ctxbroker::detail
