// SPDX-License-Identifier: Apache-2.0
// cuGraph*: making graphs, looking at them, launching them. The nodes' own calls are in
// graph_node_calls.cpp.
#include <algorithm>
#include <map>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/entry.hpp"
#include "api/graph.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Graph> new_graph() {
  auto graph = std::make_shared<Graph>();
  Process::instance().graphs.insert(graph, [] {});
  return graph;
}

// Tells as many as fit; without a place for them, how many there are. What is left is null.
void tell(const GraphNodes& nodes, CUgraphNode* targets, std::size_t* count) {
  check_value(count != nullptr);
  if (targets == nullptr) {
    *count = nodes.size();
    return;
  }
  for (std::size_t i = 0; i < *count; ++i)
    targets[i] = i < nodes.size() ? nodes[i]->handle : nullptr;
  *count = std::min(*count, nodes.size());
}

GraphNodes roots_of(const Graph& graph) {
  GraphNodes roots;
  for (const auto& node : graph.nodes)
    if (node->after.empty()) roots.push_back(node);
  return roots;
}

GraphNodes dependents_of(const std::shared_ptr<GraphNode>& node) {
  GraphNodes found;
  if (std::shared_ptr<Graph> graph = node->graph.lock())
    for (const auto& other : graph->nodes)
      if (std::find(other->after.begin(), other->after.end(), node) != other->after.end())
        found.push_back(other);
  return found;
}

CUresult get_nodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count, bool roots) {
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    std::lock_guard lock(graphs_mutex());
    tell(roots ? roots_of(*found) : found->nodes, nodes, count);
  });
}

CUresult get_dependencies(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    std::lock_guard lock(graphs_mutex());
    tell(found->after, nodes, count);
  });
}

CUresult get_dependents(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    std::lock_guard lock(graphs_mutex());
    tell(dependents_of(found), nodes, count);
  });
}

CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    check_value(count != nullptr && (from == nullptr) == (to == nullptr));
    std::lock_guard lock(graphs_mutex());
    GraphNodes begins, ends;
    for (const auto& node : found->nodes)
      for (const auto& before : node->after) {
        begins.push_back(before);
        ends.push_back(node);
      }
    std::size_t room = *count;
    tell(begins, from, count);
    tell(ends, to, &room);
  });
}

enum class Edge { add, remove };

CUresult change_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                      std::size_t count, Edge change) {
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    check_value(count == 0 || (from != nullptr && to != nullptr));
    std::lock_guard lock(graphs_mutex());
    for (std::size_t i = 0; i < count; ++i) {
      std::shared_ptr<GraphNode> before = find_node(from[i]), node = find_node(to[i]);
      check_value(before->graph.lock() == found && node->graph.lock() == found);
      auto edge = std::find(node->after.begin(), node->after.end(), before);
      check_value((edge == node->after.end()) == (change == Edge::add) && before != node);
      if (change == Edge::add)
        node->after.push_back(before);
      else
        node->after.erase(edge);
    }
  });
}

void fill_plain(CUgraphEdgeData* edges, std::size_t count) {
  for (std::size_t i = 0; edges != nullptr && i < count; ++i) edges[i] = {};
}

CUgraphExec instantiate(CUgraph graph, unsigned long long flags) {
  // Priorities of nodes: nothing here has any.
  constexpr unsigned long long known =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  check_value((flags & ~known) == 0);
  check_that((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0, CUDA_ERROR_NOT_SUPPORTED);
  std::shared_ptr<Graph> found = find_graph(graph);
  std::lock_guard lock(graphs_mutex());
  check_value(!found->in_capture);
  return Process::instance().graph_execs.insert(
      std::make_shared<GraphExec>(steps_of(*found), *found,
                                  (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0),
      [] {});
}

CUresult instantiate_plainly(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return working([&] {
    check_value(exec != nullptr);
    *exec = instantiate(graph, flags);
  });
}

CUresult instantiate_with(CUgraphExec* exec, CUgraph graph,
                          CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return working([&] {
    check_value(exec != nullptr && parameters != nullptr);
    parameters->hErrNode_out = nullptr;
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    *exec = instantiate(graph, parameters->flags);
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  });
}

// The first forms also say in words what was wrong.
CUresult instantiate_with_log(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                              std::size_t size) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && size > 0) *log = 0;
  return instantiate_plainly(exec, graph, 0);
}

CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  return working([&] {
    check_value(result != nullptr);
    *result = {};
    result->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    std::shared_ptr<GraphExec> into = find_exec(exec);
    *result = update_exec(*into, *find_graph(graph));
    check_that(result->result == CU_GRAPH_EXEC_UPDATE_SUCCESS,
               CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  });
}

CUresult launch(CUgraphExec exec, CUstream stream) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    launch_graph(find_exec(exec), found);
  });
}

// The software device has nowhere to bring a graph ahead of its launch: it is there already.
CUresult upload(CUgraphExec exec, CUstream stream) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    find_exec(exec);
  });
}

}  // namespace

CTXB_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(graph != nullptr && flags == 0);
    *graph = new_graph()->handle;
  });
}

CTXB_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    std::lock_guard lock(graphs_mutex());
    check_value(!found->in_capture);
    forget_graph(found);
  });
}

CTXB_EXPORT CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(clone != nullptr);
    std::shared_ptr<Graph> found = find_graph(graph);
    std::lock_guard lock(graphs_mutex());
    GraphNodes order = in_order(*found);
    for (const auto& node : order)
      check_that(node->operation.memory == nullptr && node->operation.freed == 0,
                 CUDA_ERROR_NOT_SUPPORTED);
    auto copy = std::make_shared<Graph>(*found);
    copy->nodes.clear();
    copy->in_capture = false;
    Process::instance().graphs.insert(copy, [] {});
    std::map<const GraphNode*, std::shared_ptr<GraphNode>> copies;
    for (const auto& node : order) {
      GraphNodes after;
      for (const auto& before : node->after) after.push_back(copies.at(before.get()));
      copies[node.get()] = add_node(copy, node->operation, std::move(after));
    }
    *clone = copy->handle;
  });
}

CTXB_EXPORT CUresult cuGraphDestroyNode(CUgraphNode node) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<GraphNode> found = find_node(node);
    std::lock_guard lock(graphs_mutex());
    std::shared_ptr<Graph> graph = found->graph.lock();
    check_value(graph != nullptr && !graph->in_capture);
    for (const auto& other : graph->nodes) std::erase(other->after, found);
    std::erase(graph->nodes, found);
    Process::instance().graph_nodes.take(node);
  });
}

CTXB_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  CTXB_COUNT_CALL();
  return get_nodes(graph, nodes, count, false);
}
CTXB_EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  CTXB_COUNT_CALL();
  return get_nodes(graph, nodes, count, true);
}

CTXB_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes,
                                                std::size_t* count) {
  CTXB_COUNT_CALL();
  return get_dependencies(node, nodes, count);
}
CTXB_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes,
                                                   CUgraphEdgeData* edges, std::size_t* count) {
  CTXB_COUNT_CALL();
  CUresult status = get_dependencies(node, nodes, count);
  if (status == CUDA_SUCCESS) fill_plain(edges, *count);
  return status;
}
CTXB_EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes,
                                                  std::size_t* count) {
  CTXB_COUNT_CALL();
  return get_dependents(node, nodes, count);
}
CTXB_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                                     CUgraphEdgeData* edges, std::size_t* count) {
  CTXB_COUNT_CALL();
  CUresult status = get_dependents(node, nodes, count);
  if (status == CUDA_SUCCESS) fill_plain(edges, *count);
  return status;
}
CTXB_EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                     std::size_t* count) {
  CTXB_COUNT_CALL();
  return get_edges(graph, from, to, count);
}
CTXB_EXPORT CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                        CUgraphEdgeData* edges, std::size_t* count) {
  CTXB_COUNT_CALL();
  CUresult status = get_edges(graph, from, to, count);
  if (status == CUDA_SUCCESS) fill_plain(edges, *count);
  return status;
}

CTXB_EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from,
                                            const CUgraphNode* to, std::size_t count) {
  CTXB_COUNT_CALL();
  return change_edges(graph, from, to, count, Edge::add);
}
CTXB_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                               const CUgraphNode* to, const CUgraphEdgeData* edges,
                                               std::size_t count) {
  CTXB_COUNT_CALL();
  CUresult status = at_any_time([&] { check_plain(edges, count); });
  return status != CUDA_SUCCESS ? status : change_edges(graph, from, to, count, Edge::add);
}
CTXB_EXPORT CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from,
                                               const CUgraphNode* to, std::size_t count) {
  CTXB_COUNT_CALL();
  return change_edges(graph, from, to, count, Edge::remove);
}
CTXB_EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                                  const CUgraphNode* to,
                                                  const CUgraphEdgeData* edges, std::size_t count) {
  CTXB_COUNT_CALL();
  CUresult status = at_any_time([&] { check_plain(edges, count); });
  return status != CUDA_SUCCESS ? status : change_edges(graph, from, to, count, Edge::remove);
}

CTXB_EXPORT CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node,
                                        char* log, std::size_t size) {
  CTXB_COUNT_CALL();
  return instantiate_with_log(exec, graph, error_node, log, size);
}
CTXB_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph,
                                           CUgraphNode* error_node, char* log, std::size_t size) {
  CTXB_COUNT_CALL();
  return instantiate_with_log(exec, graph, error_node, log, size);
}
CTXB_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                 unsigned long long flags) {
  CTXB_COUNT_CALL();
  return instantiate_plainly(exec, graph, flags);
}
CTXB_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return instantiate_with(exec, graph, parameters);
}
CTXB_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  CTXB_COUNT_CALL();
  return instantiate_with(exec, graph, parameters);
}

CTXB_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                       CUgraphExecUpdateResult* result) {
  CTXB_COUNT_CALL();
  CUgraphExecUpdateResultInfo info{};
  CUresult status = update(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return status;
}
CTXB_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                          CUgraphExecUpdateResultInfo* result) {
  CTXB_COUNT_CALL();
  return update(exec, graph, result);
}

CTXB_EXPORT_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(exec, stream))
CTXB_EXPORT_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(exec, stream))

// Launches that run still end as they would.
CTXB_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_exec(exec);
    Process::instance().graph_execs.take(exec);
  });
}
