// SPDX-License-Identifier: Apache-2.0
// What plug-ins in a worker have the host told: strikes, and that they want to be activated again.
#include <chrono>
#include <mutex>
#include <thread>

#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(WorkerGraphTest, TellsOfStrikes) {
  std::mutex mutex;
  std::vector<std::string> strikes;
  WorkerGraphOptions with = graph_options({"CTXB_TEST_DRIVER=" + Broker::open().driver().path});
  with.worker.records = [&](const Record& record) {
    const std::lock_guard lock(mutex);
    if (std::string(record.topic) == "strike") {
      strikes.push_back(record.tenant_name + ": " + record.text);
    }
  };
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return strikes.size();
  };
  WorkerGraph graph({{{"in"}},
                     {{"out"}},
                     {{"pushes_twice", built("test_plugins/behaviours.so"), "pushes_twice"}}},
                    with);
  graph.activate({width, height});
  EXPECT_EQ(graph.node_state(0).metrics.strikes, 0U);
  std::vector<float> pixels(width * height * 4);
  graph.process(pixels.data(), pixels.data(), picture_job());
  EXPECT_EQ(graph.node_state(0).metrics.strikes, 1U);
  for (int i = 0; i < 2000 && count() == 0; ++i) {  // records take another way than answers
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::lock_guard lock(mutex);
  EXPECT_THAT(
      strikes,
      ElementsAre(HasSubstr("behaviours: in worker \"graph\": process: left 1 context(s) pushed")));
}

TEST_F(WorkerGraphTest, TellsThatAPluginAsksForARestart) {
  WorkerGraph graph(
      {{}, {{"out"}}, {{"slope", built("test_plugins/pictures.so"), "slope"}}, {{"slope", "out"}}},
      graph_options());
  graph.activate({width, height});
  std::vector<float> pixels(width * height * 4);
  for (std::int64_t position = 0; position < 4; ++position) {
    graph.process({{}, {pixels.data()}}, picture_job(position));
    EXPECT_EQ(graph.node_state(0).restart_requested, position >= 2) << position;
  }
  graph.activate({width, height});
  EXPECT_FALSE(graph.node_state(0).restart_requested);
}

}  // namespace
}  // namespace ctxbroker
