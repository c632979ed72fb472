// SPDX-License-Identifier: Apache-2.0
#include "graph/latency_plan.hpp"

#include <algorithm>

namespace ctxbroker::detail {

LatencyPlan plan_latency(const Wiring& wiring, const std::vector<std::uint64_t>& latencies) {
  LatencyPlan plan;
  std::vector<std::uint64_t> late(wiring.values.size());  // 0 for what the host gives
  plan.inputs.resize(wiring.nodes.size());
  plan.before.resize(wiring.nodes.size());
  for (const Index n : wiring.order) {
    const WiredNode& node = wiring.nodes[n];
    std::uint64_t latest = 0;
    for (const Maybe& value : node.inputs) {
      if (value) latest = std::max(latest, late[*value]);
    }
    plan.before[n] = latest;
    for (const Maybe& value : node.inputs) {
      plan.inputs[n].push_back(value ? latest - late[*value] : 0);
    }
    for (const Index value : node.outputs) {
      if (value != unused) late[value] = latest + latencies[n];
    }
  }
  const auto is_audio = [&](Index value) { return wiring.values[value].format.result_bytes == 0; };
  for (const Index value : wiring.outputs) {
    if (is_audio(value)) plan.total = std::max(plan.total, late[value]);
  }
  for (const Index value : wiring.outputs) {
    plan.outputs.push_back(is_audio(value) ? plan.total - late[value] : 0);
  }
  return plan;
}

Maybe dry_source(const Wiring& wiring, Index output) noexcept {
  const Format& wanted = wiring.values[wiring.outputs[output]].format;
  for (Index value = 0; value < wiring.values.size(); ++value) {
    const Value& one = wiring.values[value];
    if (!one.node && one.frame == 0 && one.format == wanted) return value;
  }
  return {};
}

}  // namespace ctxbroker::detail
