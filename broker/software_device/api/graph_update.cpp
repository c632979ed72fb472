// SPDX-License-Identifier: Apache-2.0
// Executable graphs that are brought up to date: cuGraphExecUpdate.
#include <cstddef>
#include <map>

#include "api/graph.hpp"
#include "api/launch.hpp"

namespace ctxbroker::software {
namespace {

// What NVIDIA's driver answers for two nodes at the same place.
CUgraphExecUpdateResult compare(const Operation& before, const Operation& now) {
  if (before.type != now.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  // Memory of a graph belongs to what was instantiated.
  if (before.memory != nullptr || before.freed != 0)
    return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  if (before.device != now.device) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  if (before.kernel != nullptr &&
      &before.kernel->function->context != &now.kernel->function->context) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

std::vector<GraphExec::Step> steps_of(const Graph& graph) {
  std::vector<GraphExec::Step> steps;
  std::map<const GraphNode*, std::size_t> places;
  for (const auto& node : in_order(graph)) {
    GraphExec::Step step{node->handle, node->operation, {}};
    for (const auto& before : node->after) step.after.push_back(places.at(before.get()));
    places[node.get()] = steps.size();
    steps.push_back(std::move(step));
  }
  return steps;
}

CUgraphExecUpdateResultInfo update_exec(GraphExec& exec, const Graph& graph) {
  CUgraphExecUpdateResultInfo info{};
  std::vector<GraphExec::Step> now;
  {
    std::lock_guard lock(graphs_mutex());
    now = steps_of(graph);
  }
  std::lock_guard lock(exec.mutex);
  info.result = now.size() == exec.steps.size() ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t i = 0; info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < now.size(); ++i) {
    info.result = now[i].after == exec.steps[i].after
                      ? compare(exec.steps[i].operation, now[i].operation)
                      : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) info.errorNode = now[i].node;
  }
  if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return info;
  // The handles of the graph that was instantiated stay those by which its nodes are set.
  for (std::size_t i = 0; i < now.size(); ++i) exec.steps[i].operation = now[i].operation;
  return info;
}

}  // namespace ctxbroker::software
