// SPDX-License-Identifier: Apache-2.0
// A plug-in that ends its process ends the worker: the host lives, gets the plug-in's name, and its
// next job is right, with all parameters and states. In the host's own process, the same plug-in
// ends the host.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "graph_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// An innocent plug-in behind the guilty one, whose parameter shows whether it was restored.
WorkerGraphDescription guilty_and_innocent(const std::string& guilty = "deaths") {
  return {{{"in"}}, {{"out"}}, {node_of(guilty, "test_plugins/"), node_of("exposure")}};
}

std::vector<float> run(WorkerGraph& graph, const std::vector<float>& input) {
  std::vector<float> output(input.size());
  EXPECT_EQ(graph.process(input.data(), output.data(), picture_job()), JobOutcome::done);
  return output;
}

struct GraphDeath {
  const char* way;
  WorkerExitCause cause;
  const char* text;
  bool is_on_own_thread = false;
};

std::ostream& operator<<(std::ostream& stream, const GraphDeath& death) {
  return stream << death.way;
}

double way_of(const WorkerGraph& graph, const std::string& name) {
  return graph.description(0).parameters[0].parse(name).number();
}

class WorkerGraphDeathTest : public WorkerGraphTest,
                             public ::testing::WithParamInterface<GraphDeath> {};

TEST_P(WorkerGraphDeathTest, DeathOfAPluginNamesItAndTheGraphGoesOn) {
  const GraphDeath& death = GetParam();
  WorkerGraphOptions with = graph_options();
  if (death.cause == WorkerExitCause::late) with.worker.call_timeout = milliseconds(1000);
  WorkerGraph graph(guilty_and_innocent(), with);
  WorkerGraph bystander(guilty_and_innocent(), graph_options());
  graph.set_parameter(1, "stops", 1);
  graph.activate({width, height});
  bystander.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  const auto expected = run(graph, input);
  EXPECT_NE(expected, input);
  const int before = graph.process_id();

  graph.set_parameter(0, "way", way_of(graph, death.way));
  std::vector<float> output(input.size());
  const std::string text = error_of(
      ErrorKind::context_lost, [&] { graph.process(input.data(), output.data(), picture_job()); });
  EXPECT_THAT(
      text, AllOf(HasSubstr("worker \"graph\": "), HasSubstr(death.text),
                  HasSubstr("in process of plug-in com.example.test.deaths"),
                  HasSubstr("while it handled a job"), HasSubstr("the next call starts it again")));
  const WorkerExit end = wait_for_end();
  EXPECT_STREQ(to_string(end.cause), to_string(death.cause));
  ASSERT_EQ(end.running.size(), 1U);
  EXPECT_EQ(end.running[0].plugin, "com.example.test.deaths");
  EXPECT_THAT(end.running[0].library, HasSubstr("deaths.so"));
  EXPECT_EQ(end.running[0].function, "process");
  EXPECT_EQ(graph.reason(), end.text + "; " + end.next);
  if (death.is_on_own_thread) {
    EXPECT_THAT(end.output, HasSubstr("deaths.so crashed"));
  }

  graph.set_parameter(0, "way", 0);
  EXPECT_EQ(run(graph, input), expected);
  EXPECT_NE(graph.process_id(), before);
  EXPECT_EQ(graph.exits(), 1U);
  EXPECT_EQ(graph.reason(), "");
  EXPECT_EQ(run(bystander, input), input);
  EXPECT_EQ(bystander.exits(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerGraphDeathTest,
    ::testing::Values(GraphDeath{"segv", WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
                      GraphDeath{"abort", WorkerExitCause::signal, "signal 6 (SIGABRT)"},
                      GraphDeath{"overflow", WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
                      GraphDeath{"exit", WorkerExitCause::exited, "exit status 3"},
                      GraphDeath{"quiet_exit", WorkerExitCause::exited, "exit status 0"},
                      GraphDeath{"kill", WorkerExitCause::signal, "signal 9 (SIGKILL)"},
                      GraphDeath{"stop", WorkerExitCause::stopped, "stopped by a signal"},
                      GraphDeath{"endless", WorkerExitCause::late, "did not end within 1000 ms"},
                      GraphDeath{"deadlock", WorkerExitCause::late, "did not end within 1000 ms"},
                      GraphDeath{"thread", WorkerExitCause::signal, "signal 11 (SIGSEGV)", true}),
    [](const auto& one) { return std::string(one.param.way); });

// The positive control: without a worker, whoever runs the plug-in ends.
TEST(WorkerGraphControl, DISABLED_HostRunsTheDeadlyPlugin) {
  const char* const way = std::getenv("CTXB_TEST_WAY");
  ASSERT_NE(way, nullptr);
  InProcess here(guilty_and_innocent());
  here.instances[0].set_parameter("way", here.instances[0].description().parameters[0].parse(way));
  here.activate({width, height});
  std::vector<float> pixels(width * height * 4);
  here.graph->process(pixels.data(), pixels.data(), picture_job());
  std::puts("the host goes on");
}

TEST(WorkerGraphControl, WithoutAWorkerTheHostEnds) {
  for (const char* way : {"segv", "abort", "exit", "quiet_exit", "kill"}) {
    const ChildResult child =
        run_child("WorkerGraphControl.DISABLED_HostRunsTheDeadlyPlugin", {{"CTXB_TEST_WAY", way}});
    EXPECT_THAT(child.output, ::testing::Not(HasSubstr("the host goes on"))) << way;
  }
  const ChildResult child =
      run_child("WorkerGraphControl.DISABLED_HostRunsTheDeadlyPlugin", {{"CTXB_TEST_WAY", "none"}});
  EXPECT_THAT(child.output, HasSubstr("the host goes on"));
}

// A kernel's fault ends CUDA in the worker.
TEST_F(WorkerGraphTest, AFaultOnTheDeviceEndsTheWorkerAlone) {
  WorkerGraph graph(guilty_and_innocent("memory_faults"), graph_options());
  graph.set_parameter(1, "stops", 1);
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  const auto expected = run(graph, input);
  graph.set_parameter(0, "access", 1);
  graph.set_parameter(0, "offset", 1 << 20);
  std::vector<float> output(input.size());
  EXPECT_THAT(error_of(ErrorKind::context_lost,
                       [&] { graph.process(input.data(), output.data(), picture_job()); }),
              AllOf(HasSubstr("memory_faults"), HasSubstr("kernel touch"),
                    HasSubstr("the next call starts it again")));
  EXPECT_STREQ(to_string(graph.last_exit()->cause), "cuda-ended");
  graph.set_parameter(0, "access", 0);
  EXPECT_EQ(run(graph, input), expected);
}

TEST_F(WorkerGraphTest, ADeathInSetUpIsNamed) {
  for (const char* where : {"create:segv", "dlopen:abort"}) {
    const auto make = [&] {
      WorkerGraph graph(one("crashes"), graph_options({"CTXB_TEST_CRASH=" + std::string(where)}));
    };
    EXPECT_THAT(error_of(ErrorKind::context_lost, make),
                AllOf(AnyOf(HasSubstr("in create of plug-in com.example.test.crashes"),
                            AllOf(HasSubstr("in dlopen of library"), HasSubstr("crashes.so"))),
                      HasSubstr("while it handled a plug-in's creation")));
  }
  WorkerGraph graph(one("deaths"), graph_options());
  graph.set_parameter(0, "in_activate", way_of(graph, "segv"));
  EXPECT_THAT(error_of(ErrorKind::context_lost,
                       [&] {
                         graph.activate({width, height});
                       }),
              HasSubstr("in activate of plug-in com.example.test.deaths"));
  // The formats of an activation that has failed do not stay.
  error_of(ErrorKind::context_lost, [&] {
    graph.activate({width, height}, {{"in", 1}}, {{"out", 1}});
  });
  EXPECT_FALSE(graph.active());
  graph.set_parameter(0, "in_activate", 0);
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  EXPECT_EQ(run(graph, input), input);
}

TEST_F(WorkerGraphTest, ConstructorThatThrowsEndsTheWorkerWithThatReason) {
  EXPECT_THAT(error_of(ErrorKind::context_lost,
                       [&] { WorkerGraph graph(one("throws_constructor"), graph_options()); }),
              AllOf(HasSubstr("a static constructor (the table cannot be read)"),
                    HasSubstr("throws_constructor.so")));
}

TEST_F(WorkerGraphTest, RestartRestoresParametersAndTexts) {
  WorkerGraph graph(one("parameters"), graph_options());
  graph.set_text(0, "title", "four");
  graph.set_parameter(0, "tint", {0.1, 0.2, 0.3, 0.4});
  graph.set_parameter(0, "count", 7);
  graph.activate({width, height});
  graph.set_parameter(0, "gain", -3.3);
  const std::vector<float> input(width * height * 4);
  const auto expected = run(graph, input);
  EXPECT_EQ(expected[7], 7);
  EXPECT_EQ(expected[9], static_cast<float>(-3.3));
  kill(graph.process_id(), SIGKILL);
  wait_for_end();
  graph.set_parameter(0, "amount", 4);  // while there is no process
  auto changed = expected;
  changed[0] = 4;
  EXPECT_EQ(run(graph, input), changed);
  EXPECT_EQ(graph.exits(), 1U);
}

JobInfo sound_job(int number) {
  JobInfo job;
  job.width = 128;
  job.height = 1;
  job.position = number * 128;
  job.sample_rate = 48000;
  return job;
}

// Contexts of one process share their addresses. So a stray pointer reaches a neighbour there, and
// not in another process.
TEST_F(WorkerGraphTest, AStrayWriteDoesNotReachANeighbourInAnotherProcess) {
  const auto table =
      std::filesystem::temp_directory_path() / ("ctxb_table_" + std::to_string(getpid()));
  const WorkerNode hostile = node_of("hostile", "test_plugins/");
  WorkerGraphDescription description{
      {{"in"}},
      {{"neighbour"}, {"other"}},
      {{"first", hostile.library}, {"second", hostile.library}},
      {{"in", "first"}, {"in", "second"}, {"first", "neighbour"}, {"second", "other"}}};
  const std::vector<float> in(std::size_t{width} * height * 4, 2);
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    std::filesystem::remove(table);
    WorkerGraphOptions with = graph_options({"CTXB_TEST_TABLE=" + table.string()});
    with.grouping = grouping;
    WorkerGraph graph(description, with);
    graph.activate({width, height});
    const auto neighbour = [&] {
      std::vector<float> out(in.size()), other(in.size());
      graph.process({{in.data()}, {out.data(), other.data()}}, picture_job());
      return out;
    };
    const auto expected = neighbour();
    graph.set_parameter(1, "kernel", 6);
    try {
      neighbour();
    } catch (const Error& error) {  // in a process of its own, the address can be nobody's
      EXPECT_EQ(error.kind(), ErrorKind::context_lost) << error.what();
      EXPECT_EQ(grouping, WorkerGrouping::each_instance);
    }
    graph.set_parameter(1, "kernel", 0);
    if (grouping == WorkerGrouping::together) {  // the control
      EXPECT_NE(neighbour(), expected);
    } else {
      EXPECT_EQ(neighbour(), expected);
    }
    EXPECT_EQ(graph.exits(0), 0U);
  }
  std::filesystem::remove(table);
}

// The filter's state is its impulse response, and the worker knows it from a preset.
TEST_F(WorkerGraphTest, RestartRestoresStates) {
  WorkerGraphDescription description{{{"in"}}, {{"out"}}, {node_of("fir")}};
  InProcess here(description);
  Preset preset = save_preset(here.instances[0]);
  std::vector<std::byte> state(20);
  std::memcpy(state.data(), "CTXBFIR1\2\0\0\0\0\0\0\77\0\0\200\76", 20);  // taps 0.5 and 0.25
  preset.state = state;
  WorkerGraph graph(description, graph_options());
  graph.load_preset(0, preset);
  graph.activate({128, 1, 48000, false});
  std::vector<float> input(128), output(128);
  input[0] = 1;
  const auto runs = [&](int number) {
    graph.process(input.data(), output.data(), sound_job(number));
    EXPECT_EQ(output[0], 0.5F);
    EXPECT_EQ(output[1], 0.25F);
    EXPECT_EQ(output[2], 0.0F);
  };
  runs(0);
  for (int i = 1; i < 3; ++i) {
    kill(graph.process_id(), SIGKILL);
    wait_for_end(static_cast<std::size_t>(i));
    runs(i);
    graph.deactivate();
    EXPECT_EQ(graph.save_preset(0).state, state);
    graph.activate({128, 1, 48000, false});
    runs(i);
  }
}

TEST_F(WorkerGraphTest, RestartTellsOfAStateThatWasNotSeen) {
  const auto told = [&](const char* text) {
    const auto all = records();
    return std::count_if(all.begin(), all.end(), [&](const std::string& record) {
      return record.find(text) != std::string::npos;
    });
  };
  WorkerGraphOptions with = graph_options();
  WorkerGraph graph({{{"in"}}, {{"out"}}, {node_of("fir")}}, with);
  graph.activate({128, 1, 48000, false});
  std::vector<float> samples(128);
  const auto run_after_kill = [&](std::size_t end) {
    kill(graph.process_id(), SIGKILL);
    wait_for_end(end);
    graph.process(samples.data(), samples.data(), sound_job(0));
  };
  run_after_kill(1);
  EXPECT_EQ(told("plug-in fir starts with the state of a new instance"), 1);
  kill(graph.process_id(), SIGKILL);
  wait_for_end(2);
  with.worker.name.clear();  // the records have a name all the same
  graph = WorkerGraph::from(std::move(graph), with);
  EXPECT_EQ(told("plug-in fir moves to another process: its state is lost"), 1);
  // The control: it is seen here.
  graph.deactivate();
  graph.activate({128, 1, 48000, false});
  run_after_kill(3);
  EXPECT_EQ(told("starts with the state of a new instance"), 1);
  graph = WorkerGraph::from(std::move(graph), with);
  EXPECT_EQ(told("its state is lost"), 1);
}

// As in the host's process: see FailureInFlightTest.
TEST_F(WorkerGraphTest, FailedSubmitLeavesOlderJobsInFlight) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 3;
  WorkerGraphDescription description = one("behaviours");
  description.nodes[0].plugin = "every_second_fails";
  WorkerGraph graph(description, with);
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  std::vector<std::vector<float>> outputs(4, std::vector<float>(input.size()));
  std::vector<std::uint64_t> jobs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const JobBuffers buffers{{input.data()}, {outputs[i].data()}};
    const JobInfo job = picture_job(static_cast<std::int64_t>(i));
    if (i % 2 == 0) {
      error_of(ErrorKind::plugin_failed, [&] { graph.submit(buffers, job); });
    } else {
      jobs.push_back(graph.submit(buffers, job));
    }
  }
  EXPECT_EQ(jobs, (std::vector<std::uint64_t>{1, 2}));
  for (const std::uint64_t job : jobs) EXPECT_EQ(graph.finish(job), JobOutcome::done);
  EXPECT_EQ(outputs[1], input);
  EXPECT_EQ(outputs[3], input);
  EXPECT_EQ(graph.exits(), 0U);
}

TEST_F(WorkerGraphTest, JobsInFlightAreLostWithTheWorker) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 3;
  WorkerGraph graph(one("deaths"), with);
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  std::vector<float> output(input.size());
  const JobBuffers buffers{{input.data()}, {output.data()}};
  graph.submit(buffers, picture_job());
  const std::uint64_t second = graph.submit(buffers, picture_job(1));
  kill(graph.process_id(), SIGKILL);
  wait_for_end();
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { graph.finish(second); }),
              HasSubstr("SIGKILL"));
  EXPECT_EQ(graph.finish(second), JobOutcome::forgotten);
  EXPECT_EQ(graph.finish(graph.submit(buffers, picture_job(2))), JobOutcome::done);
  EXPECT_EQ(output, input);
  // A submit that finds the worker dead tells so, because jobs before it are lost.
  graph.submit(buffers, picture_job(3));
  kill(graph.process_id(), SIGKILL);
  wait_for_end(2);
  error_of(ErrorKind::context_lost, [&] { graph.submit(buffers, picture_job(4)); });
  EXPECT_EQ(graph.finish(graph.submit(buffers, picture_job(5))), JobOutcome::done);
}

// Whatever call finds the worker dead, it says so before the jobs are forgotten.
TEST_F(WorkerGraphTest, AQuestionDoesNotHideThatJobsAreLost) {
  WorkerGraph graph(one("deaths"), graph_options());
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  std::vector<float> output(input.size());
  const JobBuffers buffers{{input.data()}, {output.data()}};
  graph.submit(buffers, picture_job());
  kill(graph.process_id(), SIGKILL);
  wait_for_end();
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { static_cast<void>(graph.node_state(0)); }),
              HasSubstr("SIGKILL"));
  EXPECT_EQ(graph.node_state(0).metrics.jobs, 0U);
  EXPECT_EQ(graph.finish(graph.submit(buffers, picture_job())), JobOutcome::done);
}

// The host has asked, and its buffers may not suit what the next process would answer.
TEST_F(WorkerGraphTest, RegionsAreLostWithTheWorker) {
  WorkerGraph graph(one("deaths"), graph_options());
  graph.activate({width, height});
  JobInfo job = picture_job();
  job.region = {0, 0, 8, 8};
  const auto input = noise(width * height * 4, 5);
  std::vector<float> output(8 * 8 * 4);
  ASSERT_EQ(graph.input_regions(job)[0].width, width);
  kill(graph.process_id(), SIGKILL);
  wait_for_end();
  const auto process = [&] { return graph.process(input.data(), output.data(), job); };
  EXPECT_THAT(error_of(ErrorKind::context_lost, process), HasSubstr("call input_regions again"));
  ASSERT_EQ(graph.input_regions(job)[0].width, width);
  EXPECT_EQ(process(), JobOutcome::done);
  EXPECT_EQ(output[31], input[31]);
}

TEST_F(WorkerGraphTest, AGraphWithJobsInFlightEndsInPeace) {
  const auto input = noise(width * height * 4, 5);
  std::vector<float> output(input.size());
  {
    WorkerGraphOptions with = graph_options();
    with.graph.jobs_in_flight = 3;
    WorkerGraph graph(one("deaths"), with);
    graph.activate({width, height});
    graph.submit({{input.data()}, {output.data()}}, picture_job());
    graph.submit({{input.data()}, {output.data()}}, picture_job(1));
  }
  EXPECT_EQ(output, std::vector<float>(input.size()));  // nobody has waited for them
  EXPECT_THAT(records(), ::testing::Not(::testing::Contains(HasSubstr("crashed"))));
}

TEST_F(WorkerGraphTest, PluginThatForksAndReturnsInBothProcessesHarmsNobody) {
  WorkerGraph graph(guilty_and_innocent(), graph_options());
  graph.set_parameter(1, "stops", 1);
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 5);
  const auto expected = run(graph, input);
  const int before = graph.process_id();
  graph.set_parameter(0, "way", way_of(graph, "fork"));
  for (int round = 0; round < 5; ++round) EXPECT_EQ(run(graph, input), expected);
  graph.set_parameter(0, "way", 0);
  EXPECT_EQ(run(graph, input), expected);
  EXPECT_EQ(graph.process_id(), before);
  EXPECT_EQ(graph.exits(), 0U);
  // Who crashes afterwards is named all the same.
  graph.set_parameter(0, "way", way_of(graph, "abort"));
  std::vector<float> output(input.size());
  EXPECT_THAT(error_of(ErrorKind::context_lost,
                       [&] { graph.process(input.data(), output.data(), picture_job()); }),
              HasSubstr("in process of plug-in com.example.test.deaths"));
}

TEST_F(WorkerGraphTest, CrashingGraphIsQuarantinedAndPardoned) {
  WorkerGraphOptions with = graph_options();
  with.worker.crash_limit = 2;
  WorkerGraph graph(one("deaths"), with);
  graph.activate({width, height});
  graph.set_parameter(0, "way", way_of(graph, "abort"));
  const auto input = noise(width * height * 4, 5);
  std::vector<float> output(input.size());
  const auto job = [&] { graph.process(input.data(), output.data(), picture_job()); };
  error_of(ErrorKind::context_lost, job);
  EXPECT_THAT(error_of(ErrorKind::context_lost, job), HasSubstr("it is quarantined"));
  EXPECT_EQ(graph.state(), WorkerState::quarantined);
  EXPECT_EQ(error_of(ErrorKind::wrong_state, job), graph.reason());
  graph.set_parameter(0, "way", 0);
  graph.pardon();
  EXPECT_EQ(run(graph, input), input);
}

TEST_F(WorkerGraphTest, GraphsThatDiedLeaveNothing) {
  const Left before = settled_left();
  {
    WorkerGraph graph(guilty_and_innocent(), graph_options());
    graph.activate({width, height});
    const auto input = noise(width * height * 4, 5);
    run(graph, input);
    const Left running = left();
    std::vector<float> output(input.size());
    for (const char* way : {"segv", "quiet_exit", "abort", "kill"}) {
      graph.set_parameter(0, "way", way_of(graph, way));
      error_of(ErrorKind::context_lost,
               [&] { graph.process(input.data(), output.data(), picture_job()); });
      graph.set_parameter(0, "way", 0);
      EXPECT_EQ(run(graph, input), input);
      EXPECT_EQ(left_after_all(running), running) << way;
    }
    for (std::uint32_t i = 1; i < 4; ++i) {  // larger blocks replace smaller ones
      graph.activate({width * i, height});
      JobInfo job = picture_job();
      job.width = width * i;
      std::vector<float> pixels(std::size_t{job.width} * height * 4);
      graph.process(pixels.data(), pixels.data(), job);
      EXPECT_EQ(left_after_all(running), running);
    }
  }
  EXPECT_EQ(left_after_all(before), before);
}

}  // namespace
}  // namespace ctxbroker
