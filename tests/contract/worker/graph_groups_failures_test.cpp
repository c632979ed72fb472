// SPDX-License-Identifier: Apache-2.0
// What goes wrong in a graph of several workers: a crash ends the plug-ins of one of them alone, a
// lost job is a discontinuity for all, and a refused one changes nothing.
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "ctxbroker/manifest.hpp"
#include "groups_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The plug-in in the middle crashes. Its neighbours do not notice, and it is named alone.
TEST_F(WorkerGroupsTest, ACrashEndsOneProcess) {
  WorkerGraphDescription graph = row({"exposure", "vignette"});
  graph.nodes.insert(graph.nodes.begin() + 1, {"deaths", built("test_plugins/deaths.so")});
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.worker.crash_limit = 2;
  WorkerGraph there(graph, with);
  there.set_parameter(0, "stops", 1);
  there.activate({width, height});
  const auto input = noise(width * height * 4, 2);
  std::vector<float> expected(input.size()), got(input.size());
  there.process(input.data(), expected.data(), picture_job());
  const int before = there.process_id(0), behind = there.process_id(2);
  for (std::uint64_t ends = 1; ends <= 2; ++ends) {
    there.set_parameter(1, "way", 1);
    EXPECT_THAT(error_of(ErrorKind::context_lost,
                         [&] { there.process(input.data(), got.data(), picture_job()); }),
                HasSubstr("com.example.test.deaths"));
    EXPECT_EQ(there.exits(1), ends);
    ASSERT_TRUE(there.last_exit(1));
    ASSERT_EQ(there.last_exit(1)->running.size(), 1U);
    if (ends == 2) break;
    there.set_parameter(1, "way", 0);
    there.process(input.data(), got.data(), picture_job());
    EXPECT_EQ(got, expected);
  }
  EXPECT_EQ(there.state(1), WorkerState::quarantined);
  EXPECT_EQ(there.state(0), WorkerState::ready);
  EXPECT_EQ(there.process_id(0), before);
  EXPECT_EQ(there.process_id(2), behind);
  EXPECT_EQ(there.exits(0) + there.exits(2), 0U);
  EXPECT_THAT(records(), Contains(HasSubstr("worker \"graph: 2 deaths\"")));
  there.pardon();
  there.set_parameter(1, "way", 0);
  there.process(input.data(), got.data(), picture_job());
  EXPECT_EQ(got, expected);
  // Together, they all go.
  WorkerGraph together(graph, graph_options());
  together.activate({width, height});
  together.set_parameter(1, "way", 1);
  error_of(ErrorKind::context_lost,
           [&] { together.process(input.data(), got.data(), picture_job()); });
  EXPECT_EQ(together.exits(0), 1U);
}

TEST_F(WorkerGroupsTest, AStandByAndARetryServeEachProcess) {
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.stand_by = true;
  with.stand_by_memory = std::uint64_t{1} << 30;
  with.retry = true;
  WorkerGraph there(row({"exposure", "blur"}), with);
  there.activate({width, height});
  const auto input = noise(width * height * 4, 2);
  std::vector<float> expected(input.size()), got(input.size());
  there.process(input.data(), expected.data(), picture_job());
  for (const std::size_t node : {0U, 1U}) {
    const int process = there.process_id(node);
    kill(process, SIGKILL);
    there.process(input.data(), got.data(), picture_job());
    EXPECT_EQ(got, expected);
    EXPECT_NE(there.process_id(node), process);
  }
}

// The graph of two outputs, with a branch that is late.
class LostStepTest : public WorkerGroupsTest {
 protected:
  static constexpr std::size_t samples = std::size_t{block} * channels;
  struct Outputs {
    std::vector<float> late = std::vector<float>(samples), early = late;
    bool operator==(const Outputs&) const = default;
  };
  static WorkerGraph made(const WorkerGraphOptions& options) {
    WorkerGraph graph(late_and_early(), options);
    graph.set_parameter(1, "taps", 65);
    graph.activate({block, channels, 48000});
    return graph;
  }
  JobBuffers buffers(Outputs& outputs) const {
    return {{input.data()}, {outputs.late.data(), outputs.early.data()}};
  }
  // The first block of a graph.
  Outputs first() {
    Outputs outputs;
    made(graph_options()).process(buffers(outputs), job);
    return outputs;
  }
  const std::vector<float> input = noise(samples, 4);
  const JobInfo job{block, channels, 0, 48000};
};

// A lost block makes every process forget what it has delayed.
TEST_F(LostStepTest, ALostBlockIsADiscontinuity) {
  WorkerGraph graph = made(grouped(WorkerGrouping::each_instance));
  Outputs outputs;
  for (int i = 0; i < 3; ++i) graph.process(buffers(outputs), job);
  EXPECT_NE(outputs, first());
  kill(graph.process_id(1), SIGSTOP);
  error_of(ErrorKind::context_lost, [&] { graph.process(buffers(outputs), job); });
  graph.process(buffers(outputs), job);
  EXPECT_EQ(outputs, first());
}

TEST_F(LostStepTest, ALostJobInFlightIsADiscontinuity) {
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.graph.jobs_in_flight = 2;
  WorkerGraph graph = made(with);
  Outputs outputs, others;
  graph.process(buffers(outputs), job);
  graph.submit(buffers(outputs), job);
  const std::uint64_t last = graph.submit(buffers(others), job);
  const int process = graph.process_id(2);
  kill(process, SIGKILL);
  while (graph.process_id(2) == process) std::this_thread::yield();
  error_of(ErrorKind::context_lost, [&] { graph.finish(last); });
  graph.process(buffers(outputs), job);
  EXPECT_EQ(outputs, first());
}

// Not even the plug-ins in front of the one that refuses it have seen the job.
TEST_F(LostStepTest, RefusedJobReachesNoProcess) {
  WorkerGraph graph = made(grouped(WorkerGrouping::each_instance)), whole = made(graph_options());
  Outputs outputs, expected;
  const auto process = [&](WorkerGraph& one, Outputs& to) { one.process(buffers(to), job); };
  process(graph, outputs);
  process(whole, expected);
  const auto refused = [&](ErrorKind kind, const JobInfo& info, const WorkerJobEvents& events) {
    for (WorkerGraph* one : {&graph, &whole}) {
      error_of(kind, [&] { one->process(buffers(outputs), info, events); });
    }
  };
  const WorkerParameterChange quiet{0, 0, 0, -20};
  refused(ErrorKind::parameter_value, job, {{quiet, {1, 0, 1, 1e9}}, {}});
  refused(ErrorKind::invalid_argument, job, {{quiet, {1, 99, 1, 0}}, {}});
  refused(ErrorKind::invalid_argument, job, {{{0, 0, 5, -20}, {0, 0, 4, -20}}, {}});
  JobInfo other = job;
  other.sample_rate = 44100;
  refused(ErrorKind::invalid_argument, other, {});
  other = job;
  other.region = {0, 0, 4, 4};
  refused(ErrorKind::invalid_argument, other, {});
  EXPECT_EQ(graph.parameter_value(0, "gain_db"), whole.parameter_value(0, "gain_db"));
  process(graph, outputs);
  process(whole, expected);
  EXPECT_EQ(outputs, expected);
}

TEST_F(WorkerGroupsTest, ALentOutputMayEndBeforeItsJob) {
  WorkerGraph graph(row({"exposure", "blur"}), grouped(WorkerGrouping::each_instance));
  graph.activate({width, height});
  const auto input = noise(width * height * 4, 3);
  WorkerBuffer output = graph.lend(input.size() * sizeof(float));
  const std::uint64_t job = graph.submit({{input.data()}, {output.data()}}, picture_job());
  std::vector<float> expected(input.size());
  output = {};
  EXPECT_EQ(graph.finish(job), JobOutcome::done);
  output = graph.lend(input.size() * sizeof(float));
  graph.process({{input.data()}, {output.data()}}, picture_job());
  graph.process(input.data(), expected.data(), picture_job());
  EXPECT_EQ(std::memcmp(output.data(), expected.data(), output.bytes()), 0);
}

// Without a manifest, a process says what the plug-ins are. A manifest that lies is found out.
TEST_F(WorkerGroupsTest, GroupingNeedsNoManifestAndBelievesNone) {
  WorkerGraphDescription graph = row({"exposure", "exposure"});
  const std::filesystem::path library = folder() / "exposure.so";
  std::filesystem::copy(graph.nodes[0].library, library);
  graph.nodes[0].library = library;
  const WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  WorkerGraph there(graph, with);
  EXPECT_EQ(there.processes(), 2U);
  EXPECT_EQ(there.description(0).library_path, library);
  PluginDescription other = there.description(0);
  other.name = "Another";
  std::ofstream(manifest_path(library)) << to_json(make_manifest(library, {other}));
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { WorkerGraph made(graph, with); }),
              HasSubstr("differently than before or in its manifest"));
}

TEST_F(WorkerGroupsTest, GroupedGraphRefusesBadDescriptions) {
  const WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  const auto refused = [&](const WorkerGraphDescription& graph, ErrorKind kind, const char* text) {
    EXPECT_THAT(error_of(kind, [&] { WorkerGraph made(graph, with); }), HasSubstr(text));
  };
  WorkerGraphDescription bad = row({"exposure", "blur"});
  bad.nodes[1].library = built("plugins/no_such.so");
  refused(bad, ErrorKind::plugin_not_found, "no_such.so");
  bad = row({"exposure", "blur"});
  bad.nodes[1].plugin = "nobody";
  refused(bad, ErrorKind::plugin_not_found, "has no plug-in \"nobody\"");
  refused(row({"exposure", "gain"}), ErrorKind::invalid_argument, "processes audio");
  bad = row({"exposure", "blur"});
  bad.edges = {{"in", "exposure0"}, {"exposure0", "nobody"}, {"blur1", "out"}};
  refused(bad, ErrorKind::invalid_argument, "nothing is named \"nobody\"");

  WorkerGraphOptions late = with;
  late.graph.late = LateJobs::drop;
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] {
                         WorkerGraph made(row({"exposure", "blur"}), late);
                       }),
              HasSubstr("GraphOptions::late"));

  WorkerGraph there(row({"exposure", "blur"}), with);
  std::vector<float> pixels(width * height * 4);
  const auto throws = [&](ErrorKind kind, const JobBuffers& buffers, const JobInfo& job,
                          const WorkerJobEvents& events = {}) {
    return error_of(kind, [&] { there.process(buffers, job, events); });
  };
  throws(ErrorKind::wrong_state, {{pixels.data()}, {pixels.data()}}, picture_job());
  error_of(ErrorKind::wrong_state, [&] { static_cast<void>(there.latency_frames()); });
  error_of(ErrorKind::wrong_state, [&] { static_cast<void>(there.job_inputs()); });
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] {
                         there.activate({width, height}, {{"other"}}, {{"out"}});
                       }),
              HasSubstr("other ports"));
  EXPECT_FALSE(there.active());
  there.activate({width, height});
  error_of(ErrorKind::invalid_argument, [&] { there.activate({width, height, 48000}); });
  error_of(ErrorKind::invalid_argument, [&] { there.activate({0, height}); });
  EXPECT_TRUE(there.active());
  there.activate({width, height});
  throws(ErrorKind::invalid_argument, {{}, {pixels.data()}}, picture_job());
  throws(ErrorKind::invalid_argument, {{pixels.data()}, {nullptr}}, picture_job());
  throws(ErrorKind::invalid_argument, {{pixels.data()}, {pixels.data()}}, picture_job(),
         {{{5, 0, 0, 0}}, {}});
  JobInfo job = picture_job();
  job.width = 1U << 20U;
  EXPECT_THAT(throws(ErrorKind::invalid_argument, {{pixels.data()}, {pixels.data()}}, job),
              HasSubstr("does not fit"));
  job = picture_job();
  job.extents = {{0, 0, 0, 0}};
  throws(ErrorKind::invalid_argument, {{pixels.data()}, {pixels.data()}}, job);
  job.extents.resize(7, {0, 0, width, height});
  throws(ErrorKind::invalid_argument, {{pixels.data()}, {pixels.data()}}, job);
  error_of(ErrorKind::invalid_argument, [&] { there.set_parameter(2, "stops", 1); });
  EXPECT_EQ(there.process(pixels.data(), pixels.data(), picture_job()), JobOutcome::done);
  EXPECT_EQ(there.exits(0) + there.exits(1), 0U);
  there.deactivate();
  throws(ErrorKind::wrong_state, {{pixels.data()}, {pixels.data()}}, picture_job());
}

// The host cuts samples out of pictures where a process says so. It reads nothing beyond them.
TEST_F(WorkerGroupsTest, ImpossibleRegionsOfAProcessAreRefused) {
  const std::pair<const char*, const char*> lies[] = {
      {"region_larger", "and there are 8 x 8 pixels at (0, 0)"},
      {"region_elsewhere", "liar.out has 8 x 8 pixels at (4, 4)"},
      {"region_beyond", "is out of range"},
      {"region_huge", "an answer of it cannot be right"}};
  for (const auto& [lie, text] : lies) {
    WorkerGraphOptions with = graph_options({std::string("TEST_GRAPH_LIE=") + lie});
    with.grouping = WorkerGrouping::each_instance;
    with.worker.program = worker_file("worker_graph_liar");
    const WorkerNode liar{"liar", built("test_plugins/deaths.so"), "liar"};
    WorkerGraphDescription description{{{"in"}}, {{"out"}}, {liar, liar}};
    description.nodes[1].name = "second";
    WorkerGraph graph(description, with);
    graph.activate({8, 8});
    std::vector<float> pixels(8 * 8 * 4), output(8 * 8 * 4);
    const JobInfo job{8, 8};
    try {
      graph.process(pixels.data(), output.data(), job);
      ADD_FAILURE() << lie << " was believed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text)) << lie;
    }
  }
}

// A process says what its latency is, and the host's memory pays for the delays beside it.
TEST_F(WorkerGroupsTest, DelaysThatTakeTooMuchMemoryAreRefused) {
  WorkerGraph graph({{{"in"}},
                     {{"out"}},
                     {{"late", built("test_plugins/audio_probes.so"), "longest_latency"},
                      node_of("gain"),
                      node_of("mix")},
                     {{"in", "late"},
                      {"in", "gain"},
                      {"late", "mix.in_1"},
                      {"gain", "mix.in_2"},
                      {"mix", "out"}}},
                    grouped(WorkerGrouping::each_instance));
  EXPECT_THAT(error_of(ErrorKind::over_limit,
                       [&] {
                         graph.activate({block, channels, 48000});
                       }),
              HasSubstr("the plug-ins report such latencies"));
  EXPECT_FALSE(graph.active());
  EXPECT_EQ(graph.exits(0) + graph.exits(1) + graph.exits(2), 0U);
}

}  // namespace
}  // namespace ctxbroker
