// SPDX-License-Identifier: Apache-2.0
// Groups the nodes of a graph into processes, and finds what flows between the processes. Pure, as
// the wiring is.
#pragma once

#include <string>
#include <vector>

#include "ctxbroker/worker_graph.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

// The nodes of one process, or of the host.
struct Group {
  bool in_host = false;
  std::vector<Index> nodes;            // of the whole graph, in their order
  WorkerGraphDescription graph;        // of these nodes; the ports have no formats yet
  std::vector<Index> inputs, outputs;  // of each end: the whole graph's value
};

// The same graph with edges. The names of a row say nothing, so a row gets new ones.
WorkerGraphDescription with_edges(WorkerGraphDescription graph,
                                  const std::vector<const PluginDescription*>& plugins);

// Returns the graph as `wire` takes it, without instances.
GraphDescription graph_of(const WorkerGraphDescription& whole);

// Returns a plug-in's key. If `grouping` holds for all, plug-ins with equal keys share a process.
std::string group_key(WorkerGrouping grouping, const PluginDescription& plugin, Index node);
// The key of the plug-ins in the host's process.
extern const char* const host_key;

// Nodes with equal keys share a process, unless a node of another process stands between them. The
// groups are in the order in which they run. `wiring` is from `connect`.
std::vector<Group> group_nodes(const WorkerGraphDescription& whole, const Wiring& wiring,
                               const std::vector<std::string>& keys);

// The groups as nodes of a graph. `wiring` has the whole graph's formats, and `frames` what each
// group needs of each of its inputs. `ports` must outlive the wiring.
Wiring wire_groups(const std::vector<Group>& groups, const Wiring& wiring,
                   const std::vector<FrameRanges>& frames, std::vector<PluginDescription>& ports);

}  // namespace ctxbroker::detail
