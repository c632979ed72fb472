// SPDX-License-Identifier: Apache-2.0
// The plug-ins of a WorkerGraph that are in this process: in a worker, or in the host.
#pragma once

#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/worker_graph.hpp"

namespace ctxbroker::detail {

struct LoadedNode {
  std::string name;
  PluginLibrary library;
  PluginInstance instance;
};

// Throws what Broker::load and Broker::create throw.
LoadedNode load_node(Broker& broker, const WorkerNode& node);

// After their graph has ended.
void deactivate_all(std::vector<LoadedNode>& nodes);

// Activates the plug-ins, and describes their graph. Without edges, it is a row. Throws what
// PluginInstance::activate throws; then some are active.
GraphDescription activate_all(std::vector<LoadedNode>& nodes, const ActivationSizes& sizes,
                              std::vector<GraphPort> inputs, std::vector<GraphPort> outputs,
                              const std::vector<GraphEdge>& edges);

}  // namespace ctxbroker::detail
