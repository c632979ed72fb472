// SPDX-License-Identifier: Apache-2.0
#include "worker/loaded_nodes.hpp"

#include <utility>

#include "graph/row.hpp"

namespace ctxbroker::detail {

LoadedNode load_node(Broker& broker, const WorkerNode& node) {
  const PluginLibrary library = broker.load(node.library);
  return {node.name, library, broker.create(library, node.plugin, node.options)};
}

void deactivate_all(std::vector<LoadedNode>& nodes) {
  for (LoadedNode& one : nodes) one.instance.deactivate();
}

GraphDescription activate_all(std::vector<LoadedNode>& nodes, const ActivationSizes& sizes,
                              std::vector<GraphPort> inputs, std::vector<GraphPort> outputs,
                              const std::vector<GraphEdge>& edges) {
  GraphDescription graph{std::move(inputs), std::move(outputs), {}, edges};
  std::vector<PluginInstance*> instances;
  for (LoadedNode& one : nodes) {
    one.instance.activate(sizes);
    instances.push_back(&one.instance);
    graph.nodes.push_back({one.name, &one.instance});
  }
  if (!edges.empty()) return graph;
  GraphDescription row = in_a_row(instances, graph.inputs[0].samples);
  graph.inputs[0].name = row.inputs[0].name;
  graph.outputs[0].name = row.outputs[0].name;
  graph.nodes = std::move(row.nodes);
  graph.edges = std::move(row.edges);
  return graph;
}

}  // namespace ctxbroker::detail
