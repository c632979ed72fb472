// SPDX-License-Identifier: Apache-2.0
// Which branches of a graph are early, and by how many frames. Pure, as the wiring is.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/wiring.hpp"

namespace ctxbroker::detail {

struct LatencyPlan {
  std::vector<std::uint64_t> before;               // by how many frames each node's input is late
  std::vector<std::vector<std::uint64_t>> inputs;  // for each node and input: its delay, in frames
  std::vector<std::uint64_t> outputs;              // for each of the host's outputs
  std::uint64_t total = 0;                         // by how many frames the host's outputs are late
};

// `latencies` are the nodes', in frames. Everything that a node reads becomes as late as its latest
// input, and all audio for the host as late as the latest of it. Results are not delayed.
LatencyPlan plan_latency(const Wiring& wiring, const std::vector<std::uint64_t>& latencies);

// The host's input that stands for one of its outputs when the work is late: the first one of the
// same format. Nothing: there is none.
Maybe dry_source(const Wiring& wiring, Index output) noexcept;

}  // namespace ctxbroker::detail
