// SPDX-License-Identifier: Apache-2.0
// Gives the broker's own code access to the implementation of a Graph.
#pragma once

#include <cstdint>
#include <vector>

#include "ctxbroker/graph.hpp"

namespace ctxbroker::detail {

class Instance;

// Everything that a graph was made from. Use `instances` instead of the description's instances,
// which the host may have moved.
struct GraphParts {
  GraphDescription description;
  ActivationSizes sizes;
  GraphOptions options;
  std::vector<Instance*> instances;  // one for each node
  std::uint64_t buffer_bytes = 0;    // the device memory of its jobs' buffers
};

struct GraphAccess {
  // Throws Error (wrong_state) when the graph was moved from.
  static const GraphParts& parts_of(const Graph& graph);
  // Marks the buffers of the next job, inputs and then outputs, that lie in registered memory which
  // nothing else uses until the job is done. The job copies directly from there and to there. For
  // LateJobs::deliver, and without jobs that wait.
  static void set_direct(Graph& graph, const std::vector<bool>& is_direct);
};

}  // namespace ctxbroker::detail
