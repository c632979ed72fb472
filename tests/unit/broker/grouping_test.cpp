// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph share a process.
#include "worker/grouping.hpp"

#include <gtest/gtest.h>

#include <set>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {
namespace {

PortDescription picture_port(const char* id) {
  PortDescription made;
  made.id = made.name = id;
  made.channels = CTXB_CHANNELS(4);
  made.samples = CTXB_SAMPLE_FLOAT;
  return made;
}

// Nodes with two inputs, which read from any node before them.
struct Nodes {
  void add(const std::string& first, const std::string& second) {
    const std::string name = "n" + std::to_string(whole.nodes.size());
    whole.nodes.push_back({name, "library.so"});
    whole.edges.push_back({first, name + ".a"});
    whole.edges.push_back({second, name + ".b"});
  }
  std::vector<Group> grouped(const std::vector<std::string>& keys) {
    whole.edges.push_back({whole.nodes.back().name, "out"});
    plugin.inputs = {picture_port("a"), picture_port("b")};
    plugin.outputs = {picture_port("result")};
    const std::vector<const PluginDescription*> plugins(whole.nodes.size(), &plugin);
    wiring = connect(graph_of(whole), plugins);
    return group_nodes(whole, wiring, keys);
  }

  WorkerGraphDescription whole{{{"in"}}, {{"out"}}, {}};
  PluginDescription plugin;
  Wiring wiring;
};

// Each group reads only from the host and from groups before it, and has nodes of one key.
TEST(GroupingTest, EachGroupCanBeginWhenThoseBeforeHaveEnded) {
  unsigned state = 1;
  const auto draw = [&](std::size_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % below;
  };
  std::size_t shared = 0;
  for (int round = 0; round < 200; ++round) {
    Nodes graph;
    std::vector<std::string> keys;
    const std::size_t count = 2 + draw(12);
    for (std::size_t n = 0; n < count; ++n) {
      const auto source = [&] {
        const std::size_t from = draw(n + 1);
        return from == n ? std::string("in") : "n" + std::to_string(from);
      };
      const std::string first = n == 0 ? "in" : source();
      graph.add(first, source());
      keys.push_back(std::to_string(draw(3)));
    }
    const std::vector<Group> groups = graph.grouped(keys);
    std::set<Index> made, nodes;
    for (Index v = 0; !graph.wiring.values[v].node; ++v) made.insert(v);
    for (const Group& group : groups) {
      ASSERT_FALSE(group.nodes.empty());
      for (const Index n : group.nodes) {
        EXPECT_EQ(keys[n], keys[group.nodes.front()]);
        EXPECT_TRUE(nodes.insert(n).second);
      }
      for (const Index value : group.inputs) EXPECT_EQ(made.count(value), 1U) << value;
      made.insert(group.outputs.begin(), group.outputs.end());
      EXPECT_EQ(group.inputs.size(), group.graph.inputs.size());
      EXPECT_EQ(group.outputs.size(), group.graph.outputs.size());
    }
    EXPECT_EQ(nodes.size(), count);
    for (const Index value : graph.wiring.outputs) EXPECT_EQ(made.count(value), 1U);
    shared += count - groups.size();
    std::vector<PluginDescription> ports;
    const Wiring between =
        wire_groups(groups, graph.wiring, std::vector<FrameRanges>(groups.size()), ports);
    EXPECT_EQ(between.nodes.size(), groups.size());
  }
  EXPECT_GT(shared, 200U);
}

// There are 2^60 ways through this graph.
TEST(GroupingTest, GraphWithManyPathsIsGroupedInLittleTime) {
  Nodes graph;
  std::vector<std::string> keys;
  graph.add("in", "in");
  keys.emplace_back("a");
  for (int n = 1; n < 120; ++n) {
    graph.add("n" + std::to_string(n - 1), "n" + std::to_string(n < 2 ? 0 : n - 2));
    keys.emplace_back(n % 2 == 0 ? "a" : "b");
  }
  EXPECT_EQ(graph.grouped(keys).size(), 120U);
}

}  // namespace
}  // namespace ctxbroker::detail
