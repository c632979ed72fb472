// SPDX-License-Identifier: Apache-2.0
// A graph of this process goes on in a worker.
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "graph_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The last one has a state.
WorkerGraphDescription row() {
  WorkerGraphDescription described{{{"in"}},
                                   {{"out"}},
                                   {node_of("exposure"), node_of("hostile", "test_plugins/"),
                                    node_of("behaviours", "test_plugins/")}};
  described.nodes[2].plugin = "plain";
  return described;
}

std::vector<std::byte> state() {
  return std::vector<std::byte>(20000, std::byte{0x5A});
}

std::vector<float> picture() {
  return noise(std::size_t{width} * height * 4, 7);
}

template <typename AnyGraph>
std::vector<float> run(AnyGraph& graph) {
  const std::vector<float> in = picture();
  std::vector<float> out(in.size());
  graph.process(in.data(), out.data(), picture_job());
  return out;
}

class WorkerMoveTest : public WorkerGraphTest {
 protected:
  // With parameters that are not the defaults.
  static InProcess graph_here(const WorkerGraphDescription& description) {
    InProcess here(description);
    here.instances[0].set_parameter("stops", 1);
    if (here.instances.size() > 2) here.instances[2].load_state(state());
    here.activate({width, height});
    return here;
  }
};

// Ends CUDA in its process.
TEST_F(WorkerMoveTest, DISABLED_GraphGoesOnInAWorkerAfterAFault) {
  InProcess here = graph_here(row());
  here.instances[1].set_parameter("factor", 3);
  const auto expected = run(*here.graph);
  here.instances[1].set_parameter("kernel", 1);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(*here.graph); }), HasSubstr("hostile"));
  EXPECT_EQ(here.instances[0].lease().state, LeaseState::ended);
  here.instances[1].set_parameter("kernel", 0);
  // The control: here it does not go on.
  error_of(ErrorKind::context_lost, [&] { run(*here.graph); });

  WorkerGraph there = WorkerGraph::from(std::move(*here.graph), graph_options());
  EXPECT_TRUE(there.active());
  EXPECT_EQ(run(there), expected);
  EXPECT_EQ(there.parameter_value(1, "factor").number(), 3);
  there.deactivate();
  EXPECT_EQ(there.save_preset(2).state, state());
  there.activate({width, height});
  // It is a worker like any other.
  there.set_parameter(1, "kernel", 1);
  error_of(ErrorKind::context_lost, [&] { run(there); });
  there.set_parameter(1, "kernel", 0);
  EXPECT_EQ(run(there), expected);
}

TEST_F(WorkerMoveTest, GraphGoesOnInAWorkerAfterAFault) {
  const ChildResult child = run_child("WorkerMoveTest.DISABLED_GraphGoesOnInAWorkerAfterAFault");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST_F(WorkerMoveTest, MoveTakesParametersTextsAndStates) {
  InProcess here(one("parameters"));
  here.instances[0].set_text("title", "moved");
  here.instances[0].set_parameter("count", 5);
  here.activate({width, height});
  WorkerGraph there = WorkerGraph::from(std::move(*here.graph), graph_options());
  EXPECT_EQ(there.text(0, "title"), "moved");
  EXPECT_EQ(there.parameter_value(0, "count").number(), 5);
}

TEST_F(WorkerMoveTest, MoveKeepsLeaseBudgetAndJobGraphs) {
  WorkerGraphDescription description = row();
  description.nodes[0].options.lease = LeaseChoice(LeaseKind::private_own);
  description.nodes[0].options.memory_budget = 1 << 20;
  description.nodes[0].options.job_graphs = true;
  InProcess here(description);
  ActivationSizes sizes{width, height};
  sizes.sample_rate = 48000;  // of a host that has one for all
  here.activate(sizes);
  // The host's objects may lie elsewhere by now.
  std::vector<PluginInstance> elsewhere = std::move(here.instances);
  PluginInstance first = std::move(elsewhere[0]);
  WorkerGraph there = WorkerGraph::from(std::move(*here.graph), graph_options());
  EXPECT_EQ(there.node_state(0).lease.granted.kind, LeaseKind::private_own);
  EXPECT_NE(there.node_state(1).lease.granted.kind, LeaseKind::private_own);
  EXPECT_EQ(there.driver().kind, here.broker.driver().kind);
  run(there);
  EXPECT_FALSE(first.active());
  here.graph.reset();
}

// The edges, the names and the jobs in flight stay as they are, and so does the sound.
TEST_F(WorkerMoveTest, MovedSoundIsTheSame) {
  const WorkerGraphDescription description{
      {{"in"}},
      {{"out"}},
      {node_of("gain"), node_of("fir"), node_of("mix")},
      {{"in", "gain"}, {"gain", "fir"}, {"fir", "mix.in_1"}, {"gain", "mix.in_2"}, {"mix", "out"}}};
  const ActivationSizes sizes{256, 2, 48000, false};
  GraphOptions how;
  how.jobs_in_flight = 2;
  how.on_done = [](std::uint64_t) {};
  InProcess here(description);
  here.instances[1].set_parameter("taps", 65);
  here.activate(sizes, how);
  JobInfo job;
  job.width = 256;
  job.height = 2;
  job.sample_rate = 48000;
  const std::vector<float> in = noise(512, 3);
  std::vector<float> expected(512), out(512), second(512);
  here.graph->process(in.data(), expected.data(), job);
  const std::uint64_t latency = here.graph->latency_frames();

  WorkerGraph there = WorkerGraph::from(std::move(*here.graph), graph_options());
  EXPECT_EQ(there.latency_frames(), latency);
  EXPECT_EQ(there.inputs()[0].name, "in");
  EXPECT_EQ(there.outputs()[0].name, "out");
  const std::uint64_t first = there.submit({{in.data()}, {out.data()}}, job);
  job.discontinuity = true;
  there.submit({{in.data()}, {second.data()}}, job);  // two in flight
  EXPECT_EQ(there.finish(first), JobOutcome::done);
  EXPECT_EQ(there.finish(2), JobOutcome::done);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(second, expected);
  // The instances can be used in a new graph here.
  here.activate(sizes);
  here.graph->process(in.data(), out.data(), job);
  EXPECT_EQ(out, expected);
}

// Here or there, a plug-in may refuse.
TEST_F(WorkerMoveTest, MovedPluginWithoutItsStateKeepsItsParameters) {
  for (const char* answer : {"save throws", "save loses", "load throws"}) {
    std::vector<std::string> told;
    BrokerOptions options;
    options.records = [&](const Record& record) { told.push_back(record.text); };
    Broker broker = Broker::open(std::move(options));
    const PluginLibrary library = broker.load(built("test_plugins/answers.so"));
    PluginInstance instance = broker.create(library, library.plugins()[0].id);
    instance.set_parameter("level", 7);
    instance.activate({width, height});
    Graph graph(broker, {&instance}, {width, height});
    const std::string variable = "CTXB_TEST_ANSWER";
    setenv(variable.c_str(), answer, 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
    WorkerGraph there =
        WorkerGraph::from(std::move(graph), graph_options({variable + "=" + answer}));
    unsetenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
    EXPECT_THAT(told, Contains(HasSubstr("its state is lost"))) << answer;
    EXPECT_EQ(there.parameter_value(0, "level").number(), 7);
    EXPECT_EQ(run(there), picture());
    EXPECT_EQ(there.exits(), 0U);
  }
}

// A failure in the worker also costs the host the old graph. The instances can be used again.
TEST_F(WorkerMoveTest, FailureToActivateInTheWorkerIsTold) {
  Broker broker = Broker::open();
  const PluginLibrary library = broker.load(built("test_plugins/answers.so"));
  PluginInstance instance = broker.create(library, library.plugins()[0].id);
  instance.activate({width, height});
  Graph graph(broker, {&instance}, {width, height});
  const auto move = [&] {
    static_cast<void>(
        WorkerGraph::from(std::move(graph), graph_options({"CTXB_TEST_ANSWER=activate throws"})));
  };
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, move), HasSubstr("activate"));
  EXPECT_THAT(error_of(ErrorKind::wrong_state, move), HasSubstr("it was moved from"));
  instance.activate({width, height});
  Graph again(broker, {&instance}, {width, height});
  EXPECT_EQ(run(again), picture());
}

TEST_F(WorkerMoveTest, GraphThatCannotMoveStaysAsItIs) {
  InProcess here = graph_here(row());
  const auto expected = run(*here.graph);
  WorkerGraphOptions wrong = graph_options();
  wrong.worker.program = built("bin/there_is_no_such_worker");
  error_of(ErrorKind::plugin_not_found,
           [&] { static_cast<void>(WorkerGraph::from(std::move(*here.graph), wrong)); });
  EXPECT_EQ(run(*here.graph), expected);

  PluginInstance& exposure = here.instances[0];
  Graph twice(here.broker, {&exposure, &exposure}, {width, height});
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument,
               [&] { static_cast<void>(WorkerGraph::from(std::move(twice), graph_options())); }),
      HasSubstr("the instance of exposure is in several nodes"));

  Tenant host = here.broker.host();
  GraphPort in{"in"}, out{"out"};
  in.on_device = true;
  const GraphDescription on_device{
      {in}, {out}, {{"exposure", &exposure}}, {{"in", "exposure"}, {"exposure", "out"}}, &host, 0};
  Graph device_end(here.broker, on_device, {width, height});
  EXPECT_THAT(
      error_of(
          ErrorKind::invalid_argument,
          [&] { static_cast<void>(WorkerGraph::from(std::move(device_end), graph_options())); }),
      HasSubstr("its port in is on the device"));
}

}  // namespace
}  // namespace ctxbroker
