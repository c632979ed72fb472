// SPDX-License-Identifier: Apache-2.0
// Graphs. A tenant's graphs and the memory that they allocate are counted, and only their holder
// ends them.
#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "gate/callback.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using PointerAttribute =
    DriverFunction<"cuPointerGetAttribute", CUresult(void*, CUpointer_attribute, CUdeviceptr)>;

// Memory that graphs allocate for themselves, by graph. The driver chooses its address when the
// node is added; then the graph names it, and so does each executable graph made of that. A launch
// allocates the memory. Where no node frees it, it outlives the graphs.
using GraphMemory = std::map<std::pair<Kind, std::uint64_t>, std::vector<std::uint64_t>>;

// The graph memory of all graphs. There is one object for the process, because handles are valid in
// all of it.
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

// Ends what is in a graph together with it.
template <typename End>
CUresult end_with_parts(std::uint64_t graph, End&& end) noexcept {
  const TakenParts parts(graph);
  const CUresult status = end();
  if (status != CUDA_SUCCESS) parts.put_back();
  return status;
}
template <typename End>
CUresult end_with_functions(std::uint64_t exec, End&& end) noexcept {
  const std::uint64_t taken = take_exec_functions(exec);
  const CUresult status = end();
  if (status != CUDA_SUCCESS) put_back_exec_functions(taken, exec);
  return status;
}

template <SymbolName name, typename... Rest>
struct MakesGraph {
  using Real = DriverFunction<name, CUresult(CUgraph*, Rest...)>;
  static CUresult call(CUgraph* out, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, rest...);
    // The nodes of a clone do what those of the original do: record its holder's events, too.
    if constexpr ((std::is_same_v<Rest, CUgraph> && ...)) {
      const CUresult refused =
          check_use(*caller.tenant, Real::symbol, Kind::graph, handle_value(rest)...);
      if (refused != CUDA_SUCCESS) return refused;
    }
    return make_held(*caller.tenant, Kind::graph, out, 0, [&] {
      const CUresult status = Real::call(out, rest...);
      if (status == CUDA_SUCCESS) forget_member(handle_value(*out));
      return status;
    });
  }
};

template <SymbolName name, typename... Rest>
struct Instantiates {
  using Real = DriverFunction<name, CUresult(CUgraphExec*, CUgraph, Rest...)>;
  static CUresult call(CUgraphExec* out, CUgraph graph, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, graph, rest...);
    // A graph that allocates can have one executable graph only.
    const CUresult refused =
        check_use(*caller.tenant, Real::symbol, Kind::graph, handle_value(graph));
    if (refused != CUDA_SUCCESS) return refused;
    const CUresult status = make_held(*caller.tenant, Kind::graph_exec, out, 0,
                                      [&] { return Real::call(out, graph, rest...); });
    if (status == CUDA_SUCCESS && out != nullptr) {
      pass_on_graph_memory(handle_value(graph), handle_value(*out));
    }
    return status;
  }
};

// The parameters can name a stream to upload in.
template <SymbolName name>
using InstantiatesWithParams = Checked<Instantiates<name, CUDA_GRAPH_INSTANTIATE_PARAMS*>,
                                       structure_at(2, Structure::instantiate)>;

// The memory that it names is forgotten with it, unless a launch has allocated it.
template <SymbolName name, Kind kind, typename Handle>
struct EndsGraph {
  using Real = DriverFunction<name, CUresult(Handle)>;
  static CUresult call(Handle graph) noexcept {
    const Caller caller = enter_rule<Real>();
    if (graph == nullptr || !any_gated_tenant()) return Real::call(graph);
    const std::uint64_t value = handle_value(graph);
    const auto by_driver = [&] { return Real::call(graph); };
    const auto end = [&] {
      return kind == Kind::graph_exec ? end_with_functions(value, by_driver)
                                      : end_with_parts(value, by_driver);
    };
    const auto end_of = [&](GatedTenant& tenant) { return end_graph(tenant, kind, value, end); };
    if (caller.tenant != nullptr) {
      return end_held(*caller.tenant, Real::symbol, kind, value,
                      [&] { return end_of(*caller.tenant); });
    }
    const auto held = ledger().find(kind, value);
    GatedTenant* const tenant = held ? gated_tenant_of(held->holder.tenant) : nullptr;
    return end_by_host(caller, Real::symbol, kind, value,
                       [&] { return tenant != nullptr ? end_of(*tenant) : end(); });
  }
};

bool is_own(const GatedTenant& tenant, CUdeviceptr address) noexcept {
  return ledger().holds(tenant.holder(), Kind::graph_memory, address);
}

// A node of the tenant's graph, which it may change from now on.
template <typename Add>
CUresult add_to_graph(GatedTenant& tenant, const char* function, CUgraph graph, CUgraphNode* node,
                      Add&& add) noexcept {
  const std::uint64_t value = handle_value(graph);
  CUresult status = check_use(tenant, function, Kind::graph, value);
  if (status == CUDA_SUCCESS) status = add();
  if (status == CUDA_SUCCESS && node != nullptr)
    note_member(Kind::graph, value, handle_value(*node));
  return status;
}

// Checks that the tenant may use the things that the node works on.
CUresult check_node(const Caller& caller, const char* function,
                    const CUgraphNodeParams* node) noexcept {
  if (node == nullptr) return CUDA_SUCCESS;
  GatedTenant& tenant = *caller.tenant;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return check_inside(caller, function, node->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUresult status = check_inside(caller, function, node->memcpy.copyParams);
      if (status != CUDA_SUCCESS) return status;
      return check_use(tenant, function, Kind::context, handle_value(node->memcpy.copyCtx), lent);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return check_inside(caller, function, node->memset);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return check_inside(caller, function, node->memOp);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return check_inside(caller, function, node->conditional);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return is_own(tenant, node->free.dptr)
                 ? CUDA_SUCCESS
                 : refuse_end(tenant, function, Kind::graph_memory, node->free.dptr);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return check_use(tenant, function, Kind::event, handle_value(node->eventRecord.event));
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return check_use(tenant, function, Kind::event, handle_value(node->eventWait.event), lent);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return check_inside(caller, function, node->extSemSignal);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return check_inside(caller, function, node->extSemWait);
    case CU_GRAPH_NODE_TYPE_GRAPH:  // it may go over to the other graph
      return check_use(tenant, function, Kind::graph, handle_value(node->graph.graph));
    default:
      return CUDA_SUCCESS;
  }
}

// Gives the driver the node's parameters, with another function in place of a host node's: see
// LedGraphFunction.
template <typename Give>
CUresult give_node(GatedTenant& tenant, CUgraphNodeParams* node, ExecNode place,
                   Give&& give) noexcept {
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_HOST) return give(node);
  return pass_graph_function(tenant, node->host.fn, node->host.userData, place,
                             [&](CUhostFn function, void* data) {
                               CUgraphNodeParams led = *node;
                               led.host.fn = function;
                               led.host.userData = data;
                               return give(&led);
                             });
}

// The graphs that a conditional node executes are parts of its own.
void note_bodies(CUgraph graph, const CUgraphNodeParams* node) noexcept {
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return;
  const auto& conditional = node->conditional;
  if (conditional.phGraph_out == nullptr) return;
  note_members(Kind::graph, handle_value(graph), conditional.phGraph_out, conditional.size);
}

using AddAllocation =
    DriverFunction<"cuGraphAddMemAllocNode", CUresult(CUgraphNode*, CUgraph, const CUgraphNode*,
                                                      std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*)>;
CUresult add_allocation(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                        std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) noexcept {
  const Caller caller = enter_rule<AddAllocation>();
  const auto add = [&] { return AddAllocation::call(node, graph, after, count, parameters); };
  if (caller.tenant == nullptr) return add();
  return add_to_graph(*caller.tenant, AddAllocation::symbol, graph, node, [&] {
    return parameters == nullptr ? add()
                                 : make_graph_memory(*caller.tenant, graph, parameters->bytesize,
                                                     &parameters->dptr, add);
  });
}

using AddFreeing =
    DriverFunction<"cuGraphAddMemFreeNode",
                   CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr)>;
CUresult add_freeing(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                     CUdeviceptr address) noexcept {
  const Caller caller = enter_rule<AddFreeing>();
  if (caller.tenant != nullptr && !is_own(*caller.tenant, address)) {
    return refuse_end(*caller.tenant, AddFreeing::symbol, Kind::graph_memory, address);
  }
  const auto add = [&] { return AddFreeing::call(node, graph, after, count, address); };
  if (caller.tenant != nullptr) {
    return add_to_graph(*caller.tenant, AddFreeing::symbol, graph, node, add);
  }
  const auto refused = refuse_nobody(caller, AddFreeing::symbol, Kind::graph_memory, address);
  return refused ? *refused : add();
}

// A node of any kind.
template <SymbolName name, typename... Rest>
struct AddsNode {
  using Real = DriverFunction<name, CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, Rest...,
                                             CUgraphNodeParams*)>;
  static CUresult call(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, Rest... rest,
                       CUgraphNodeParams* parameters) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(node, graph, after, rest..., parameters);
    GatedTenant& tenant = *caller.tenant;
    const auto add = [&] {
      return give_node(tenant, parameters, {}, [&](CUgraphNodeParams* given) {
        return Real::call(node, graph, after, rest..., given);
      });
    };
    return add_to_graph(tenant, Real::symbol, graph, node, [&] {
      const CUresult refused = check_node(caller, Real::symbol, parameters);
      if (refused != CUDA_SUCCESS) return refused;
      const bool allocates =
          parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      const CUresult status = allocates
                                  ? make_graph_memory(tenant, graph, parameters->alloc.bytesize,
                                                      &parameters->alloc.dptr, add)
                                  : add();
      if (status == CUDA_SUCCESS) note_bodies(graph, parameters);
      return status;
    });
  }
};

// The node's own parameters, or those that it has in an executable graph.
template <SymbolName name, typename... Exec>
struct SetsNode {
  using Real = DriverFunction<name, CUresult(Exec..., CUgraphNode, CUgraphNodeParams*)>;
  static CUresult call(Exec... exec, CUgraphNode node, CUgraphNodeParams* parameters) noexcept {
    const Caller caller = enter_rule<Real>();
    CUresult refused = CUDA_SUCCESS;
    if constexpr (sizeof...(Exec) == 0) {
      refused = check_use(caller, Real::symbol, Kind::graph, handle_value(node));
    } else {
      refused = check_use(caller, Real::symbol, Kind::graph_exec, handle_value(exec...));
    }
    if (refused == CUDA_SUCCESS && caller.tenant != nullptr) {
      refused = check_node(caller, Real::symbol, parameters);
    }
    if (refused != CUDA_SUCCESS) return refused;
    if (caller.tenant == nullptr) return Real::call(exec..., node, parameters);
    ExecNode place;
    if constexpr (sizeof...(Exec) != 0) place = {handle_value(exec...), handle_value(node)};
    return give_node(*caller.tenant, parameters, place,
                     [&](CUgraphNodeParams* given) { return Real::call(exec..., node, given); });
  }
};

constexpr RuleRow graph_rows[] = {
    row<MakesGraph<"cuGraphCreate", unsigned>>(),
    row<MakesGraph<"cuGraphClone", CUgraph>>(),
    row<EndsGraph<"cuGraphDestroy", Kind::graph, CUgraph>>(),
    row<Instantiates<"cuGraphInstantiate", CUgraphNode*, char*, std::size_t>>(),
    row<Instantiates<"cuGraphInstantiate_v2", CUgraphNode*, char*, std::size_t>>(),
    row<Instantiates<"cuGraphInstantiateWithFlags", unsigned long long>>(),
    row<InstantiatesWithParams<"cuGraphInstantiateWithParams">>(),
    row<InstantiatesWithParams<"cuGraphInstantiateWithParams_ptsz">>(),
    row<EndsGraph<"cuGraphExecDestroy", Kind::graph_exec, CUgraphExec>>(),
    rule<AddAllocation, add_allocation>(),
    rule<AddFreeing, add_freeing>(),
    row<AddsNode<"cuGraphAddNode", std::size_t>>(),
    row<AddsNode<"cuGraphAddNode_v2", const void*, std::size_t>>(),
    row<AddsNode<"cuGraphAddNode_v3", const void*, std::size_t>>(),
    row<SetsNode<"cuGraphNodeSetParams">>(),
    row<SetsNode<"cuGraphNodeSetParams_v2">>(),
    row<SetsNode<"cuGraphExecNodeSetParams", CUgraphExec>>(),

    unguarded<PointerAttribute>(),
};

}  // namespace

void name_graph_memory(std::uint64_t graph, std::uint64_t address) {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  names.memory[{Kind::graph, graph}].push_back(address);
}

CUresult destroy_graph(GatedTenant& tenant, CUgraph graph) noexcept {
  using Destroy = DriverFunction<"cuGraphDestroy", CUresult(CUgraph)>;
  const std::uint64_t value = handle_value(graph);
  return end_graph(tenant, Kind::graph, value,
                   [&] { return end_with_parts(value, [&] { return Destroy::call(graph); }); });
}

void settle_freed(const Holding& held, CUresult status) noexcept {
  Names& names = Names::one();
  const std::lock_guard lock(names.mutex);
  const bool is_gone = status == CUDA_SUCCESS && !names.has(held.handle);
  is_gone ? stop_counting(held) : hold_again(held);
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

constinit const std::span<const RuleRow> graph_rules = graph_rows;

}  // namespace ctxbroker::detail
