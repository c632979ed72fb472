// SPDX-License-Identifier: Apache-2.0
// Graph: keeps branches of different latency aligned.
#include <string>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"
#include "graph/graph_impl.hpp"
#include "observe/span.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

// Makes the delay lines for the activations as they are now.
void Graph::Impl::make_delay_lines(const std::vector<std::shared_ptr<Lease>>& leases) {
  if (wiring.media != Media::audio) return;
  std::vector<std::uint64_t> latencies;
  for (Index n = 0; n < nodes.size(); ++n) {
    const std::uint64_t frames = nodes[n].instance->latency_frames();
    if (frames > CTXB_LATENCY_MAX) {
      throw breach(n, "latency",
                   "reports a latency of " + std::to_string(frames) +
                       " frames; it may be at most " + std::to_string(CTXB_LATENCY_MAX));
    }
    latencies.push_back(frames);
  }
  lines = DelayLines(wiring, std::move(latencies), leases, sizes, options.late == LateJobs::dry);
}

void Graph::Impl::run_line(DelayLine& line, Index node, const ctxb_buffer& from) {
  const Node& at = nodes[node];
  const ScopedSpan span(SpanCategory::copy, "delay", nullptr, host_tenant,
                        from.row_pitch * from.height);
  check_call(node, line.run(at.lease->table(), from.data, from.width, from.height, at.stream),
             "cuMemcpy2DAsync_v2", "the samples cannot be delayed");
}

// Inside the node's guard, when the input is in the node's memory.
void Graph::Impl::delay_input(const JobFlight& flight, Index node, Index port) {
  DelayLine* const line = lines.input(node, port);
  if (line == nullptr) return;
  const Index value = *wiring.nodes[node].inputs[port];
  run_line(*line, node,
           buffer(flight, value, plan.copies[node][port].value_or(plan.of_value[value]), {}));
}

// Inside the guard of the node that made it.
CUdeviceptr Graph::Impl::delayed_output(const JobFlight& flight, Index port) {
  const Index value = wiring.outputs[port];
  const Rectangle region = is_image(value) ? flight.regions.wanted : Rectangle{};
  const ctxb_buffer here = buffer(flight, value, plan.of_value[value], region);
  DelayLine* const line = lines.output(port);
  if (line == nullptr) return here.data;
  run_line(*line, *wiring.values[value].node, here);
  return line->delayed();
}

// A plug-in with latency that answered CTXB_BYPASS.
void Graph::Impl::check_no_latency(Index node) const {
  const std::uint64_t latency = lines.latency_of(node);
  if (latency == 0) return;
  throw breach(node, "process",
               "answered CTXB_BYPASS, and it reports a latency of " + std::to_string(latency) +
                   " frames; the input, passed on, would be early");
}

}  // namespace ctxbroker
