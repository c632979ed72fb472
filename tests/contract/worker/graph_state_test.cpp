// SPDX-License-Identifier: Apache-2.0
// Large states of plug-ins in a worker: their bytes go through shared memory as they are.
#include <chrono>
#include <vector>

#include "ctxbroker/preset.hpp"
#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

// A state that the plug-in accepts. No two pieces of it are the same.
std::vector<std::byte> state_of(std::size_t bytes) {
  std::vector<std::byte> state(bytes);
  std::uint32_t value = 1;
  for (std::byte& one : state) {
    value = value * 1664525 + 1013904223;
    one = static_cast<std::byte>(value >> 24);
  }
  state[0] = std::byte{0x5A};
  return state;
}

WorkerNode with_state() {
  return {"affine", built("test_plugins/behaviours.so"), "affine"};
}

// Saves, loads, saves and deactivates, and returns how long that took.
template <typename Save, typename Load, typename Restart>
std::chrono::duration<double> time_of(const Save& save, const Load& load, const Restart& restart) {
  const auto begin = std::chrono::steady_clock::now();
  Preset preset = save();
  load(preset);
  preset = save();
  restart();
  return std::chrono::steady_clock::now() - begin;
}

TEST_F(WorkerGraphTest, LargeStateTakesAboutAsLongAsInProcess) {
  const std::vector<std::byte> state = state_of(64 * mebibyte);
  const WorkerGraphDescription description{{{"in"}}, {{"out"}}, {with_state()}};
  InProcess here(description);
  PluginInstance& instance = here.instances[0];
  Preset preset = save_preset(instance);
  preset.state = state;
  static_cast<void>(load_preset(instance, preset));
  const auto alone = time_of([&] { return save_preset(instance); },
                             [&](const Preset& one) { load_preset(instance, one); },
                             [&] {
                               instance.activate({width, height});
                               instance.deactivate();
                               static_cast<void>(instance.save_state());
                             });

  WorkerGraph graph(description, graph_options());
  static_cast<void>(graph.load_preset(0, preset));
  const auto there = time_of([&] { return graph.save_preset(0); },
                             [&](const Preset& one) { graph.load_preset(0, one); },
                             [&] {
                               graph.activate({width, height});
                               graph.deactivate();
                             });
  EXPECT_TRUE(graph.save_preset(0).state == state);
  EXPECT_LT(lent_bytes(), 2 * mebibyte) << "memory for the state was kept";
  // On a quiet machine it is less than twice as long. As text, it was 25 times as long.
  if (!sanitized) {
    EXPECT_LT(there.count(), 5 * alone.count() + 0.5);
  }
}

TEST_F(WorkerGraphTest, StatesOfSeveralPluginsComeBackAfterAnExit) {
  const std::vector<std::byte> first = state_of(3 * mebibyte + 1), last = state_of(17);
  WorkerGraph graph({{{"in"}}, {{"out"}}, {with_state(), node_of("exposure"), with_state()}},
                    graph_options());
  const auto load = [&](std::size_t node, const std::vector<std::byte>& state) {
    Preset preset = graph.save_preset(node);
    preset.state = state;
    static_cast<void>(graph.load_preset(node, preset));
  };
  load(0, first);
  load(2, last);
  graph.activate({width, height});
  graph.deactivate();
  const auto expect_states = [&] {
    EXPECT_TRUE(graph.save_preset(0).state == first);
    EXPECT_FALSE(graph.save_preset(1).state.has_value());
    EXPECT_EQ(graph.save_preset(2).state, last);
  };
  expect_states();
  graph.kill("the test wants another process");
  expect_states();
}

// An empty state is another thing than none.
TEST_F(WorkerGraphTest, EmptyStateReachesThePlugin) {
  WorkerGraph graph({{{"in"}}, {{"out"}}, {with_state()}}, graph_options());
  Preset preset = graph.save_preset(0);
  preset.state.reset();
  EXPECT_EQ(graph.load_preset(0, preset).size(), 1U) << "it keeps its own, and a remark says so";
  preset.state.emplace();
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, [&] { graph.load_preset(0, preset); }),
              ::testing::HasSubstr("this state is not mine"));
}

}  // namespace
}  // namespace ctxbroker
