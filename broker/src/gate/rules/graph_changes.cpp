// SPDX-License-Identifier: Apache-2.0
// Rules for calls that change graphs, executable graphs and their nodes, and for calls that return
// nodes and inner graphs. A node belongs to its graph: the holder of the graph may change it.
#include "gate/callback.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

// The graph among the arguments of a call that adds a node. Such a call begins with the node's
// place, the graph, the nodes before it and their number.
constexpr Use to_graph{1, Kind::graph};

// CUresult name(CUgraphNode*, CUgraph, ...) of so many words.
template <SymbolName name, typename Places, Use... uses>
struct AddsAs;
template <SymbolName name, std::size_t... places, Use... uses>
struct AddsAs<name, std::index_sequence<places...>, uses...> {
  template <std::size_t>
  using WordAt = Word;
  using Real = DriverFunction<name, CUresult(CUgraphNode*, Word, WordAt<places>...)>;
  static CUresult call(CUgraphNode* node, Word graph, WordAt<places>... arguments) noexcept {
    const Caller caller = enter_rule<Real>();
    constexpr std::array<Use, 1 + sizeof...(uses)> all{to_graph, uses...};
    const Word words[] = {0, graph, arguments...};
    CUresult status = check_uses(caller, Real::symbol, words, all);
    if (status != CUDA_SUCCESS) return status;
    if (caller.tenant == nullptr) return Real::call(node, graph, arguments...);
    status = Real::call(node, graph, arguments...);
    if (status == CUDA_SUCCESS && node != nullptr) {
      note_member(Kind::graph, graph, handle_value(*node));
    }
    return status;
  }
};
template <SymbolName name, std::size_t words, Use... uses>
using Adds = AddsAs<name, std::make_index_sequence<words - 2>, uses...>;

// CUresult name(CUgraph or CUgraphNode, ...): the nodes that it tells of belong to the same graph.
// `arrays` says how many arrays it fills. The last argument tells how long these are.
template <SymbolName name, std::size_t arrays, typename... Edges>
struct TellsNodes;
template <SymbolName name, typename... Edges>
struct TellsNodes<name, 1, Edges...> {
  using Real = DriverFunction<name, CUresult(Word, CUgraphNode*, Edges..., std::size_t*)>;
  static CUresult call(Word of, CUgraphNode* nodes, Edges... edges, std::size_t* count) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(of, nodes, edges..., count);
    if (status == CUDA_SUCCESS && caller.tenant != nullptr && nodes != nullptr) {
      note_members(Kind::graph, graph_of(of), nodes, *count);
    }
    return status;
  }
};
template <SymbolName name, typename... Edges>
struct TellsNodes<name, 2, Edges...> {
  using Real =
      DriverFunction<name, CUresult(Word, CUgraphNode*, CUgraphNode*, Edges..., std::size_t*)>;
  static CUresult call(Word of, CUgraphNode* from, CUgraphNode* to, Edges... edges,
                       std::size_t* count) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(of, from, to, edges..., count);
    if (status == CUDA_SUCCESS && caller.tenant != nullptr && from != nullptr && to != nullptr) {
      note_members(Kind::graph, graph_of(of), from, *count);
      note_members(Kind::graph, graph_of(of), to, *count);
    }
    return status;
  }
};

using FindInClone =
    DriverFunction<"cuGraphNodeFindInClone", CUresult(CUgraphNode*, CUgraphNode, CUgraph)>;
CUresult find_in_clone(CUgraphNode* node, CUgraphNode original, CUgraph clone) noexcept {
  const Caller caller = enter_rule<FindInClone>();
  const CUresult status = FindInClone::call(node, original, clone);
  if (status == CUDA_SUCCESS && caller.tenant != nullptr) {
    note_member(Kind::graph, handle_value(clone), handle_value(*node));
  }
  return status;
}

// The graph of a node that has one.
using ChildGraph = DriverFunction<"cuGraphChildGraphNodeGetGraph", CUresult(Word, CUgraph*)>;
CUresult child_graph(Word node, CUgraph* graph) noexcept {
  const Caller caller = enter_rule<ChildGraph>();
  const CUresult status = ChildGraph::call(node, graph);
  if (status == CUDA_SUCCESS && caller.tenant != nullptr && graph != nullptr) {
    note_member(Kind::graph, node, handle_value(*graph));
  }
  return status;
}

// The same of a node's parameters, and the graphs that a conditional node executes. A host node's
// function is the one that was given.
using NodeParams = DriverFunction<"cuGraphNodeGetParams", CUresult(Word, CUgraphNodeParams*)>;
CUresult node_params(Word node, CUgraphNodeParams* params) noexcept {
  const Caller caller = enter_rule<NodeParams>();
  const CUresult status = NodeParams::call(node, params);
  if (status != CUDA_SUCCESS || params == nullptr) return status;
  if (params->type == CU_GRAPH_NODE_TYPE_HOST) {
    find_graph_function(params->host.fn, params->host.userData);
  }
  if (caller.tenant == nullptr) return status;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    note_member(Kind::graph, node, handle_value(params->graph.graph));
  } else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
             params->conditional.phGraph_out != nullptr) {
    note_members(Kind::graph, node, params->conditional.phGraph_out, params->conditional.size);
  }
  return status;
}

using DestroyNode = DriverFunction<"cuGraphDestroyNode", CUresult(Word)>;
CUresult destroy_node(Word node) noexcept {
  const Caller caller = enter_rule<DestroyNode>();
  if (node == 0) return DestroyNode::call(node);
  const CUresult refused = check_use(caller, DestroyNode::symbol, Kind::graph, node);
  if (refused != CUDA_SUCCESS) return refused;
  // Both are forgotten first: as soon as it has ended, its value may be another graph's node.
  const std::uint64_t graph = forget_member(node);
  if (graph == 0 && caller.tenant != nullptr) {  // another thread was quicker
    return refuse_end(*caller.tenant, DestroyNode::symbol, Kind::graph, node);
  }
  const TakenParts parts(node);
  const CUresult status = DestroyNode::call(node);
  if (status != CUDA_SUCCESS) {
    if (graph != 0) note_member(Kind::graph, graph, node);
    parts.put_back();
  }
  return status;
}

constexpr Use context_at(std::size_t position) {
  return {position, Kind::context, lent};
}

// Two attributes name an event that the kernel records.
using SetKernelAttribute =
    DriverFunction<"cuGraphKernelNodeSetAttribute",
                   CUresult(Word, CUkernelNodeAttrID, const CUkernelNodeAttrValue*)>;
CUresult set_kernel_attribute(Word node, CUkernelNodeAttrID which,
                              const CUkernelNodeAttrValue* value) noexcept {
  const Caller caller = enter_rule<SetKernelAttribute>();
  CUresult status = check_use(caller, SetKernelAttribute::symbol, Kind::graph, node);
  CUevent event = nullptr;
  if (value != nullptr && which == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
    event = value->programmaticEvent.event;
  } else if (value != nullptr && which == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
    event = value->launchCompletionEvent.event;
  }
  if (status == CUDA_SUCCESS) {
    status = check_use(caller, SetKernelAttribute::symbol, Kind::event, handle_value(event));
  }
  return status == CUDA_SUCCESS ? SetKernelAttribute::call(node, which, value) : status;
}

constexpr Use first_graph{0, Kind::graph};
constexpr Use first_exec{0, Kind::graph_exec};

template <SymbolName name, std::size_t words, Use... uses>
using ChangesGraph = Uses<name, words, first_graph, uses...>;
template <SymbolName name, std::size_t words, Use... uses>
using ChangesExec = Uses<name, words, first_exec, uses...>;

constexpr RuleRow graph_change_rows[] = {
    row<Adds<"cuGraphAddKernelNode", 5>>(),
    row<Adds<"cuGraphAddKernelNode_v2", 5, structure_at(4, Structure::kernel)>>(),
    row<Adds<"cuGraphAddMemcpyNode", 6, structure_at(4, Structure::copy), context_at(5)>>(),
    row<Adds<"cuGraphAddMemsetNode", 6, context_at(5)>>(),
    row<Adds<"cuGraphAddChildGraphNode", 5, Use{4, Kind::graph}>>(),
    row<Adds<"cuGraphAddEmptyNode", 4>>(),
    row<Adds<"cuGraphAddEventRecordNode", 5, Use{4, Kind::event}>>(),
    row<Adds<"cuGraphAddEventWaitNode", 5, Use{4, Kind::event, lent}>>(),
    row<Adds<"cuGraphAddExternalSemaphoresSignalNode", 5, structure_at(4, Structure::signals)>>(),
    row<Adds<"cuGraphAddExternalSemaphoresWaitNode", 5, structure_at(4, Structure::waits)>>(),
    row<Adds<"cuGraphAddBatchMemOpNode", 5, structure_at(4, Structure::batch)>>(),
    rule<DestroyNode, destroy_node>(),
    row<ChangesGraph<"cuGraphAddDependencies", 4>>(),
    row<ChangesGraph<"cuGraphAddDependencies_v2", 5>>(),
    row<ChangesGraph<"cuGraphRemoveDependencies", 4>>(),
    row<ChangesGraph<"cuGraphRemoveDependencies_v2", 5>>(),
    row<Uses<"cuGraphConditionalHandleCreate", 5, Use{1, Kind::graph}, context_at(2)>>(),
    row<ChangesGraph<"cuGraphReleaseUserObject", 3>>(),

    row<ChangesGraph<"cuGraphKernelNodeSetParams", 2>>(),
    row<ChangesGraph<"cuGraphKernelNodeSetParams_v2", 2, structure_at(1, Structure::kernel)>>(),
    rule<SetKernelAttribute, set_kernel_attribute>(),
    row<ChangesGraph<"cuGraphKernelNodeCopyAttributes", 2>>(),
    row<ChangesGraph<"cuGraphMemcpyNodeSetParams", 2, structure_at(1, Structure::copy)>>(),
    row<ChangesGraph<"cuGraphMemsetNodeSetParams", 2>>(),
    row<Uses<"cuGraphEventRecordNodeSetEvent", 2, first_graph, Use{1, Kind::event}>>(),
    row<Uses<"cuGraphEventWaitNodeSetEvent", 2, first_graph, Use{1, Kind::event, lent}>>(),
    row<ChangesGraph<"cuGraphExternalSemaphoresSignalNodeSetParams", 2,
                     structure_at(1, Structure::signals)>>(),
    row<ChangesGraph<"cuGraphExternalSemaphoresWaitNodeSetParams", 2,
                     structure_at(1, Structure::waits)>>(),
    row<ChangesGraph<"cuGraphBatchMemOpNodeSetParams", 2, structure_at(1, Structure::batch)>>(),

    row<ChangesExec<"cuGraphExecKernelNodeSetParams", 3>>(),
    row<ChangesExec<"cuGraphExecKernelNodeSetParams_v2", 3, structure_at(2, Structure::kernel)>>(),
    row<ChangesExec<"cuGraphExecMemcpyNodeSetParams", 4, structure_at(2, Structure::copy),
                    context_at(3)>>(),
    row<ChangesExec<"cuGraphExecMemsetNodeSetParams", 4, context_at(3)>>(),
    row<ChangesExec<"cuGraphExecChildGraphNodeSetParams", 3, Use{2, Kind::graph}>>(),
    row<ChangesExec<"cuGraphExecEventRecordNodeSetEvent", 3, Use{2, Kind::event}>>(),
    row<ChangesExec<"cuGraphExecEventWaitNodeSetEvent", 3, Use{2, Kind::event, lent}>>(),
    row<ChangesExec<"cuGraphExecExternalSemaphoresSignalNodeSetParams", 3,
                    structure_at(2, Structure::signals)>>(),
    row<ChangesExec<"cuGraphExecExternalSemaphoresWaitNodeSetParams", 3,
                    structure_at(2, Structure::waits)>>(),
    row<ChangesExec<"cuGraphExecBatchMemOpNodeSetParams", 3, structure_at(2, Structure::batch)>>(),
    row<ChangesExec<"cuGraphNodeSetEnabled", 3>>(),
    row<ChangesExec<"cuGraphExecUpdate", 4, Use{1, Kind::graph}>>(),
    row<ChangesExec<"cuGraphExecUpdate_v2", 3, Use{1, Kind::graph}>>(),
    row<ChangesExec<"cuGraphUpload", 2, Use{1, Kind::stream}>>(),
    row<ChangesExec<"cuGraphUpload_ptsz", 2, Use{1, Kind::stream}>>(),

    row<TellsNodes<"cuGraphGetNodes", 1>>(),
    row<TellsNodes<"cuGraphGetRootNodes", 1>>(),
    row<TellsNodes<"cuGraphGetEdges", 2>>(),
    row<TellsNodes<"cuGraphGetEdges_v2", 2, void*>>(),
    row<TellsNodes<"cuGraphNodeGetDependencies", 1>>(),
    row<TellsNodes<"cuGraphNodeGetDependencies_v2", 1, void*>>(),
    row<TellsNodes<"cuGraphNodeGetDependentNodes", 1>>(),
    row<TellsNodes<"cuGraphNodeGetDependentNodes_v2", 1, void*>>(),
    rule<FindInClone, find_in_clone>(),
    rule<ChildGraph, child_graph>(),
    rule<NodeParams, node_params>(),
};

}  // namespace

constinit const std::span<const RuleRow> graph_change_rules = graph_change_rows;

}  // namespace ctxbroker::detail
