// SPDX-License-Identifier: Apache-2.0
// A graph goes on while the system still ends its process, and nothing that this process writes
// meanwhile reaches it.
#include <algorithm>
#include <csignal>
#include <future>
#include <string>
#include <thread>

#include "ctxbroker/device_memory.hpp"
#include "groups_fixture.hpp"
#include "support/held_process.hpp"
#include "support/left.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::Not;

using Time = std::chrono::steady_clock;

class WorkerGraphLeavingTest : public WorkerGroupsTest {
 protected:
  // Its first plug-in ends the process in the way that `set_way` says.
  static WorkerGraph pictures(const WorkerGraphOptions& with) {
    WorkerGraph graph(
        {{{"in"}}, {{"out"}}, {node_of("deaths", "test_plugins/"), node_of("exposure")}}, with);
    graph.set_parameter(1, "stops", 1);
    graph.activate({width, height});
    return graph;
  }
  static void set_way(WorkerGraph& graph, const std::string& name) {
    graph.set_parameter(0, "way", graph.description(0).parameters[0].parse(name).number());
  }
  std::vector<float> run(WorkerGraph& graph) const {
    std::vector<float> output(input.size());
    EXPECT_EQ(graph.process(input.data(), output.data(), picture_job()), JobOutcome::done);
    return output;
  }
  std::string crash(WorkerGraph& graph, const std::string& way = "segv") const {
    set_way(graph, way);
    std::string text = error_of(ErrorKind::context_lost, [&] { run(graph); });
    set_way(graph, "none");
    return text;
  }
  // Returns whether the next crash is reported only after the system has ended the process.
  bool waits_for_the_system(WorkerGraph& graph) const {
    run(graph);
    HeldProcess held(graph.process_id());
    auto call = std::async(std::launch::async, [&] { return crash(graph); });
    const bool waits = call.wait_for(milliseconds(300)) == std::future_status::timeout;
    EXPECT_EQ(graph.exits() == 0, waits);
    held.release();
    call.wait();
    if (waits) {
      EXPECT_THAT(children(), Not(Contains(held.process())));
    }
    return waits;
  }

  const std::vector<float> input = noise(width * height * 4, 5);
};

TEST_F(WorkerGraphLeavingTest, NextProcessWorksWhileTheFirstIsLeaving) {
  for (const bool stand_by : {false, true}) {
    WorkerGraphOptions with = graph_options();
    with.stand_by = stand_by;
    WorkerGraph graph = pictures(with);
    const auto expected = run(graph);
    EXPECT_NE(expected, input);
    while (stand_by && children().size() < 2) std::this_thread::sleep_for(milliseconds(1));
    HeldProcess held(graph.process_id());
    crash(graph);
    const auto begin = Time::now();
    EXPECT_EQ(run(graph), expected);
    if (stand_by) {
      EXPECT_LT(Time::now() - begin, std::chrono::seconds(1));
    }
    EXPECT_TRUE(exists(held.process()));
    held.release();
    EXPECT_TRUE(goes(held.process()));
    EXPECT_EQ(run(graph), expected);
    EXPECT_EQ(graph.exits(), 1U);
  }
}

// A child of the process writes on, as a kernel would.
TEST_F(WorkerGraphLeavingTest, LateWritesOfALeavingProcessReachLentMemoryOnly) {
  for (const bool lends : {false, true}) {
    WorkerGraphOptions with = graph_options();
    with.graph.jobs_in_flight = 2;
    WorkerGraph graph = pictures(with);
    const auto expected = run(graph);
    WorkerBuffer block;
    if (lends) block = graph.lend(4096);
    const int first = graph.process_id();
    const auto begin = Time::now();
    crash(graph, "alone");
    EXPECT_LT(Time::now() - begin, std::chrono::seconds(3));  // call_timeout is 5 s
    EXPECT_TRUE(lends ? !exists(first) : goes(first));
    if (lends) {  // the control
      auto* const word = static_cast<volatile unsigned*>(block.data());
      for (int i = 0; i < 5000 && *word == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
      EXPECT_NE(*word, 0U);
    }
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(run(graph), expected) << i;
      std::vector<float> first_out(input.size()), second_out(input.size());
      graph.submit({{input.data()}, {first_out.data()}}, picture_job());
      const auto last = graph.submit({{input.data()}, {second_out.data()}}, picture_job());
      ASSERT_EQ(graph.finish(last), JobOutcome::done);
      ASSERT_EQ(first_out, expected) << i;
      ASSERT_EQ(second_out, expected) << i;
    }
    EXPECT_EQ(graph.exits(), 1U);
  }
}

TEST_F(WorkerGraphLeavingTest, GraphThatLendsMemoryWaitsForItsLeavingProcess) {
  {
    WorkerGraph graph = pictures(graph_options());
    EXPECT_FALSE(waits_for_the_system(graph));
  }
  {
    WorkerGraph graph = pictures(graph_options());
    const WorkerBuffer block = graph.lend(4096);
    EXPECT_TRUE(waits_for_the_system(graph));
  }
  {
    Broker broker = Broker::open();
    Tenant tenant = broker.open_tenant("lender");
    WorkerGraph graph = pictures(graph_options());
    const DeviceMemory memory = DeviceMemory::shareable(tenant, 4096);
    const WorkerDeviceBuffer lent = graph.lend(memory);
    EXPECT_TRUE(waits_for_the_system(graph));
  }
}

TEST_F(WorkerGraphLeavingTest, BlockInALeavingProcessIsDrySoon) {
  WorkerGraphOptions with = grouped(WorkerGrouping::together);
  with.dry_while_away = true;
  with.worker.crash_limit = 0;
  WorkerGraph graph(row({"gain"}), with);
  graph.activate({block, channels, 48000});
  std::vector<float> in = noise(std::size_t{block} * channels, 3), out(in.size());
  const JobInfo job{block, channels, 0, 48000};
  const auto process = [&] { return graph.process({{in.data()}, {out.data()}}, job); };
  double fastest = 1e9;
  for (int i = 0; i < 7; ++i) {
    while (process() != JobOutcome::done) std::this_thread::sleep_for(milliseconds(5));
    HeldProcess held(graph.process_id());
    held.stop();
    Time::time_point killed;
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(20));
      killed = Time::now();
      kill(held.process(), SIGKILL);
    });
    EXPECT_EQ(process(), JobOutcome::dry);
    const auto back = Time::now();
    killer.join();
    if (graph.last_exit()->cause ==
        WorkerExitCause::signal) {  // nobody noticed before that it stood
      fastest = std::min(fastest, std::chrono::duration<double, std::milli>(back - killed).count());
    }
    EXPECT_EQ(out, in);
    EXPECT_TRUE(exists(held.process()));
  }
  EXPECT_LT(fastest, 10);  // the machine may be busy
}

}  // namespace
}  // namespace ctxbroker
