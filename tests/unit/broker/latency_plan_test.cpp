// SPDX-License-Identifier: Apache-2.0
// By how many frames each branch of a graph is delayed.
#include "graph/latency_plan.hpp"

#include <gmock/gmock.h>

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using Delays = std::vector<std::uint64_t>;

// Nodes in the order of running. Value 0 is the host's; each node puts out the next one.
struct Graph {
  Wiring wiring;
  Delays latencies;

  Graph() {
    wiring.media = Media::audio;
    wiring.values.push_back({"in", {}, 0, {Media::audio}, {}, false});
  }
  Index node(std::uint64_t latency, std::vector<Maybe> inputs, std::uint32_t result_bytes = 0) {
    const Index value = wiring.values.size();
    Format format{Media::audio, 0, SampleType::float32, result_bytes};
    wiring.values.push_back({"out", wiring.nodes.size(), 0, format, {}, false});
    wiring.order.push_back(wiring.nodes.size());
    wiring.nodes.push_back({"node", nullptr, std::move(inputs), {value}, {}, {}});
    latencies.push_back(latency);
    return value;
  }
  LatencyPlan plan() const { return plan_latency(wiring, latencies); }
};

TEST(LatencyPlanTest, RowGetsNoDelays) {
  Graph graph;
  const Index one = graph.node(5, {0}), two = graph.node(7, {one});
  graph.wiring.outputs = {two};
  EXPECT_EQ(graph.plan().total, 12U);
  EXPECT_THAT(graph.plan().inputs, ElementsAre(Delays{0}, Delays{0}));
  EXPECT_THAT(graph.plan().outputs, ElementsAre(0));
}

TEST(LatencyPlanTest, InputsOfANodeAreDelayedToTheLatest) {
  Graph graph;
  const Index slow = graph.node(100, {0}), fast = graph.node(1, {0});
  const Index both = graph.node(10, {slow, Maybe(), fast, 0});
  const Index generated = graph.node(0, {});
  const Index all = graph.node(0, {generated, both});
  graph.wiring.outputs = {all, slow, all};
  const LatencyPlan plan = graph.plan();
  EXPECT_THAT(plan.inputs[2], ElementsAre(0, 0, 99, 100));
  EXPECT_THAT(plan.inputs[4], ElementsAre(110, 0));
  EXPECT_EQ(plan.total, 110U);
  EXPECT_THAT(plan.before, ElementsAre(0, 0, 100, 0, 110));
  EXPECT_THAT(plan.outputs, ElementsAre(0, 10, 0));
}

TEST(LatencyPlanTest, ResultsAreNotDelayedAndMakeNothingLate) {
  Graph graph;
  const Index late = graph.node(50, {0}), measured = graph.node(1000, {late}, 16);
  const Index early = graph.node(0, {0}, 16);
  graph.wiring.outputs = {late, measured, early};
  EXPECT_EQ(graph.plan().total, 50U);
  EXPECT_THAT(graph.plan().outputs, ElementsAre(0, 0, 0));
  graph.wiring.outputs = {measured};
  EXPECT_EQ(graph.plan().total, 0U);
}

TEST(LatencyPlanTest, UnreadOutputDoesNotChangeTheLatency) {
  Graph graph;
  const Index one = graph.node(5, {0});
  graph.wiring.nodes[0].outputs.push_back(unused);
  graph.wiring.outputs = {one};
  EXPECT_EQ(graph.plan().total, 5U);
}

}  // namespace
}  // namespace ctxbroker::detail
