// SPDX-License-Identifier: Apache-2.0
// A graph with some plug-ins in the host's process and others in workers, and a graph that moves to
// other processes.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>

#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/policy.hpp"
#include "groups_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HostPartTest : public WorkerGroupsTest {
 protected:
  WorkerGraphOptions in_host() {
    WorkerGraphOptions made = grouped(WorkerGrouping::in_host);
    made.broker = &broker;
    return made;
  }
  // A file with this under by_id.
  std::filesystem::path policy(const std::string& by_id, const std::string& for_all = "{}") {
    auto path = folder() / "policy.json";
    std::ofstream(path) << R"({"schema": "ctxbroker.policy/1", "for_all": )" << for_all
                        << R"(, "by_id": {)" << by_id << "}}";
    return path;
  }
  std::vector<float> run(WorkerGraph& graph) const {
    std::vector<float> output(input.size());
    graph.process(input.data(), output.data(), picture_job());
    return output;
  }

  Broker broker = Broker::open();
  const std::vector<float> input = noise(std::size_t{width} * height * 4, 5);
};

// Only the plug-in that is not trusted is in a worker. Its end does not reach the others.
TEST_F(HostPartTest, GraphMixesTheHostAndAWorker) {
  WorkerGraphDescription graph = row({"exposure", "vignette"});
  graph.nodes.insert(graph.nodes.begin() + 1, {"deaths", built("test_plugins/deaths.so")});
  graph.nodes[1].grouping = WorkerGrouping::each_instance;
  WorkerGraph mixed(graph, in_host());
  EXPECT_THAT(processes(mixed, 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(mixed.process_id(0), getpid());
  EXPECT_NE(mixed.process_id(1), getpid());
  EXPECT_EQ(mixed.process_id(2), getpid());
  mixed.set_parameter(0, "stops", 1);
  mixed.activate({width, height});
  EXPECT_THAT(records(), Contains(HasSubstr("2 pictures between processes stay on device 0")));
  const auto expected = run(mixed);
  InProcess here(graph);
  here.instances[0].set_parameter("stops", 1);
  here.activate({width, height});
  std::vector<float> known(input.size());
  here.graph->process(input.data(), known.data(), picture_job());
  EXPECT_EQ(expected, known);

  mixed.set_parameter(1, "way", 1);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(mixed); }), HasSubstr("deaths"));
  EXPECT_EQ(mixed.exits(1), 1U);
  EXPECT_EQ(mixed.exits(0), 0U);
  EXPECT_FALSE(mixed.last_exit(0));
  EXPECT_EQ(mixed.state(0), WorkerState::ready);
  EXPECT_EQ(mixed.reason(0), "");
  mixed.set_parameter(1, "way", 0);
  EXPECT_EQ(run(mixed), expected);
  mixed.kill("enough");  // of the worker
  EXPECT_EQ(mixed.exits(1), 2U);
  mixed.pardon();
  EXPECT_EQ(run(mixed), expected);
}

// Calls the functions of a WorkerGraph for a plug-in in the host.
TEST_F(HostPartTest, GraphServesAPluginInTheHost) {
  WorkerGraph graph({{{"in"}}, {{"out"}}, {node_of("parameters", "test_plugins/")}}, in_host());
  EXPECT_EQ(graph.processes(), 1U);
  EXPECT_EQ(graph.process_id(), getpid());
  EXPECT_EQ(graph.driver().kind, broker.driver().kind);
  EXPECT_EQ(graph.devices().size(), broker.devices().size());
  graph.set_text(0, "title", "here");
  graph.set_parameter(0, "count", 5);
  EXPECT_EQ(graph.text(0, "title"), "here");
  EXPECT_EQ(graph.parameter_value(0, "count").number(), 5);
  EXPECT_EQ(graph.from_text(0, "count", graph.to_text(0, "count", 7)).number(), 7);
  const Preset preset = graph.save_preset(0);
  graph.set_text(0, "title", "other");
  EXPECT_TRUE(graph.load_preset(0, preset).empty());
  EXPECT_EQ(graph.text(0, "title"), "here");
  EXPECT_EQ(graph.node_state(0).lease.state, LeaseState::ready);
  EXPECT_EQ(graph.node_state(0).lease.context, nullptr);
  EXPECT_FALSE(graph.metrics().tenants.empty());
  graph.poll();
  error_of(ErrorKind::wrong_state, [&] { run(graph); });
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.node_state(1)); });
  graph.activate({width, height});
  error_of(ErrorKind::wrong_state, [&] { graph.set_text(0, "title", "late"); });
  run(graph);
  EXPECT_EQ(graph.node_state(0).metrics.jobs, 1U);
  graph.deactivate();
  EXPECT_FALSE(graph.active());
  error_of(ErrorKind::wrong_state, [&] { run(graph); });
  broker.start_timeline();
  graph.activate({width, height});
  run(graph);
  std::string text;
  graph.write_timeline([&](std::string_view piece) { text += piece; });
  EXPECT_THAT(text, HasSubstr("parameters"));
}

TEST_F(HostPartTest, JobsInTheHostAreInFlightTogether) {
  WorkerGraphOptions with = in_host();
  with.graph.jobs_in_flight = 3;
  WorkerGraph graph(row({"exposure", "blur"}), with);
  EXPECT_EQ(graph.processes(), 1U);
  graph.activate({width, height});
  const auto expected = run(graph);
  const WorkerBuffer block = graph.lend(input.size() * sizeof(float));
  std::copy(input.begin(), input.end(), static_cast<float*>(block.data()));
  std::vector<std::vector<float>> outputs(3, std::vector<float>(input.size()));
  std::uint64_t last = 0;
  for (auto& output : outputs)
    last = graph.submit({{block.data()}, {output.data()}}, picture_job());
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  EXPECT_TRUE(graph.is_done(last));
  for (const auto& output : outputs) EXPECT_EQ(output, expected);
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.lend(0)); });
}

// The memory stays until the job has written its outputs there.
TEST_F(HostPartTest, LentMemoryCanGoWhileAJobUsesIt) {
  WorkerGraphDescription worker_last = row({"exposure", "blur"});
  worker_last.nodes[1].grouping = WorkerGrouping::by_plugin;
  for (const WorkerGraphDescription& graph : {row({"exposure", "blur"}), worker_last}) {
    WorkerGraphOptions with = in_host();
    with.graph.jobs_in_flight = 2;
    WorkerGraph made(graph, with);
    made.activate({width, height});
    WorkerBuffer block = made.lend(input.size() * sizeof(float));
    const auto job = made.submit({{input.data()}, {block.data()}}, picture_job());
    block = {};
    EXPECT_EQ(made.finish(job), JobOutcome::done);
  }
}

// They count on over activations, as those of a worker do.
TEST_F(HostPartTest, JobNumbersOfAGraphInTheHostCountOn) {
  WorkerGraph graph(row({"exposure", "blur"}), in_host());
  graph.activate({width, height});
  std::vector<float> output(input.size());
  const auto submit = [&] {
    return graph.submit({{input.data()}, {output.data()}}, picture_job());
  };
  EXPECT_EQ(submit(), 1U);
  EXPECT_EQ(submit(), 2U);
  error_of(ErrorKind::invalid_argument, [&] { graph.finish(99); });
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.is_done(3)); });
  EXPECT_EQ(graph.finish(2), JobOutcome::done);
  graph.activate({width, height});
  EXPECT_TRUE(graph.is_done(2));
  EXPECT_EQ(graph.finish(2), JobOutcome::forgotten);
  EXPECT_EQ(submit(), 3U);
  EXPECT_EQ(graph.finish(3), JobOutcome::done);
}

// A plug-in in the host remembers the sound before, while the process of another one is away.
TEST_F(HostPartTest, PluginInTheHostGoesOnWhileAnotherProcessIsAway) {
  WorkerGraphDescription sound = row({"delay", "gain"});
  sound.nodes[1].grouping = WorkerGrouping::by_plugin;
  WorkerGraphOptions with = in_host();
  with.dry_while_away = true;
  WorkerGraph graph(sound, with), whole(sound, with);
  const std::vector<float> loud = noise(std::size_t{block} * channels, 2), silence(loud.size());
  const auto play = [&](WorkerGraph& one, const std::vector<float>& in, std::int64_t position) {
    std::vector<float> out(in.size());
    one.process(in.data(), out.data(), {block, channels, position, 48000});
    return out;
  };
  for (WorkerGraph* one : {&graph, &whole}) {
    one->set_parameter(0, "time_ms", 10);
    one->activate({block, channels, 48000});
    play(*one, loud, 0);
  }
  kill(graph.process_id(1), SIGKILL);
  for (std::int64_t n = 1; n < 4; ++n) {
    EXPECT_EQ(play(graph, silence, n * block), play(whole, silence, n * block)) << n;
  }
  EXPECT_EQ(graph.exits(1), 1U);
}

TEST_F(HostPartTest, PolicyDecidesWhereUngroupedPluginsRun) {
  const auto of = [&](WorkerGraphDescription graph, const std::filesystem::path& file,
                      WorkerGrouping otherwise) {
    WorkerGraphOptions with = in_host();
    with.grouping = otherwise;
    with.policy = file;
    const WorkerGraph made(std::move(graph), with);
    std::vector<int> in_host;
    for (std::size_t n = 0; n < 3; ++n) in_host.push_back(made.process_id(n) == getpid() ? 1 : 0);
    return in_host;
  };
  WorkerGraphDescription graph = row({"exposure", "blur", "vignette"});
  const std::string blur = R"("org.ctxbroker.sample.blur": {"process": "in-host"})";
  EXPECT_THAT(of(graph, policy(blur), WorkerGrouping::together), ElementsAre(0, 1, 0));
  EXPECT_THAT(of(graph, policy(blur, R"({"process": "by-vendor"})"), WorkerGrouping::in_host),
              ElementsAre(0, 1, 0));
  EXPECT_THAT(of(graph, policy("", R"({"process": "in-host"})"), WorkerGrouping::together),
              ElementsAre(1, 1, 1));
  graph.nodes[1].grouping = WorkerGrouping::together;
  EXPECT_THAT(of(graph, policy(blur), WorkerGrouping::in_host), ElementsAre(1, 0, 1));
  {  // a host that runs no plug-ins itself
    WorkerGraphOptions with = graph_options();
    with.policy = policy(blur);
    EXPECT_EQ(WorkerGraph(row({"exposure", "blur"}), with).processes(), 1U);
  }
  EXPECT_THAT(
      error_of(ErrorKind::policy, [&] { of(graph, policy(R"("a.b": {"process": "alone"})"), {}); }),
      HasSubstr("each-instance"));
}

// A plug-in that asks for a worker gets one, unless the host chooses otherwise for it.
TEST_F(HostPartTest, LeaseOptionAsksForAWorker) {
  WorkerGraphDescription graph = row({"exposure", "blur"});
  graph.nodes[0].options.lease = LeaseChoice(LeaseKind::worker);
  {
    WorkerGraph made(graph, in_host());
    EXPECT_NE(made.process_id(0), getpid());
    EXPECT_EQ(made.process_id(1), getpid());
    EXPECT_THAT(made.node_state(0).lease.reason, HasSubstr("asked for worker"));
  }
  graph.nodes[0].grouping = WorkerGrouping::in_host;
  const WorkerGraph made(graph, in_host());
  EXPECT_EQ(made.process_id(0), getpid());
}

TEST_F(HostPartTest, HostPartRefusesBadOptions) {
  WorkerGraphOptions with = in_host();
  with.broker = nullptr;
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { WorkerGraph(row({"blur"}), with); }),
              HasSubstr("WorkerGraphOptions::broker"));
  with = in_host();
  WorkerGraphDescription on_device = row({"blur"});
  on_device.inputs[0].on_device = true;
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { WorkerGraph(on_device, with); }),
              HasSubstr("in the host"));
  WorkerGraph graph(row({"blur"}), with);
  graph.activate({width, height});
  std::vector<float> output(input.size());
  error_of(ErrorKind::invalid_argument, [&] {
    graph.process({{input.data(), input.data()}, {output.data()}}, picture_job());
  });
  error_of(ErrorKind::invalid_argument, [&] {
    graph.process({{input.data()}, {}}, picture_job());
  });
  Tenant tenant = broker.open_tenant("frames");
  const DeviceMemory memory(tenant, 4096);
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.lend(memory)); }),
              HasSubstr("use a Graph"));
}

// ---- Moving ----------------------------------------------------------------------------------

TEST_F(HostPartTest, GraphMovesBetweenHostAndProcesses) {
  WorkerGraph graph(row({"exposure", "blur", "vignette"}), graph_options());
  graph.set_parameter(0, "stops", 2);
  graph.activate({width, height});
  const auto expected = run(graph);
  const auto move = [&](const WorkerGraphOptions& to,
                        const std::vector<WorkerGrouping>& nodes = {}) {
    graph = WorkerGraph::from(std::move(graph), to, nodes);
    EXPECT_EQ(run(graph), expected);
    EXPECT_EQ(graph.parameter_value(0, "stops").number(), 2);
  };
  move(grouped(WorkerGrouping::each_instance));
  EXPECT_THAT(processes(graph, 3), ElementsAre(0, 1, 2));
  move(in_host());
  EXPECT_EQ(graph.process_id(), getpid());
  EXPECT_EQ(graph.processes(), 1U);
  move(in_host(),
       {WorkerGrouping::in_host, WorkerGrouping::each_instance, WorkerGrouping::in_host});
  EXPECT_THAT(processes(graph, 3), ElementsAre(0, 1, 2));
  move(grouped(WorkerGrouping::together), std::vector(3, WorkerGrouping::together));
  EXPECT_EQ(graph.processes(), 1U);
  EXPECT_NE(graph.process_id(), getpid());
  error_of(ErrorKind::invalid_argument, [&] { move(in_host(), {WorkerGrouping::in_host}); });
  EXPECT_EQ(run(graph), expected);
  WorkerGraph moved = std::move(graph);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what it refuses
  error_of(ErrorKind::wrong_state, [&] {
    // NOLINTNEXTLINE(bugprone-use-after-move)
    static_cast<void>(WorkerGraph::from(std::move(graph), graph_options()));
  });
}

// The culprit among three suspects is found, because the next crash has only one.
TEST_F(HostPartTest, SuspectsRunAloneAfterACrash) {
  WorkerGraphDescription three = row({"exposure", "vignette"});
  three.nodes.insert(three.nodes.begin() + 1, {"deaths", built("test_plugins/deaths.so")});
  WorkerGraph graph(three, graph_options());
  graph.activate({width, height});
  const auto expected = run(graph);
  graph.set_parameter(1, "way", 1);
  error_of(ErrorKind::context_lost, [&] { run(graph); });
  EXPECT_EQ(graph.exits(0), 1U);
  EXPECT_EQ(graph.exits(1), 1U);
  // Its process is away, and it moves all the same.
  graph = WorkerGraph::from(std::move(graph), grouped(WorkerGrouping::each_instance));
  error_of(ErrorKind::context_lost, [&] { run(graph); });
  EXPECT_EQ(graph.exits(0), 0U);
  EXPECT_EQ(graph.exits(1), 1U);
  EXPECT_EQ(graph.exits(2), 0U);
  graph.set_parameter(1, "way", 0);
  EXPECT_EQ(run(graph), expected);
}

TEST_F(HostPartTest, StateMovesWithItsPlugin) {
  WorkerGraph graph({{{"in"}}, {{"out"}}, {{"it", built("test_plugins/answers.so"), "answers"}}},
                    in_host());
  Preset preset = graph.save_preset(0);
  ASSERT_TRUE(preset.state);
  graph = WorkerGraph::from(std::move(graph), graph_options());
  EXPECT_EQ(graph.save_preset(0).state, preset.state);
  graph = WorkerGraph::from(std::move(graph), graph_options({"CTXB_TEST_ANSWER=load throws"}));
  EXPECT_THAT(records(), ::testing::Contains(HasSubstr("its state is lost")));
}

// It ends CUDA in this process, so it runs in a child.
TEST_F(HostPartTest, DISABLED_PluginsMoveOutAfterAFaultInTheHost) {
  WorkerGraphDescription graph = row({"exposure"});
  graph.nodes.push_back(node_of("hostile", "test_plugins/"));
  graph.nodes[0].grouping = WorkerGrouping::together;
  WorkerGraph mixed(graph, in_host());
  mixed.activate({width, height});
  const auto expected = run(mixed);
  mixed.set_parameter(1, "kernel", 1);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(mixed); }), HasSubstr("hostile"));
  EXPECT_EQ(mixed.node_state(1).lease.state, LeaseState::ended);
  EXPECT_EQ(mixed.exits(0), 0U);
  mixed.set_parameter(1, "kernel", 0);
  error_of(ErrorKind::context_lost, [&] { run(mixed); });  // the control
  mixed = WorkerGraph::from(std::move(mixed), graph_options());
  EXPECT_EQ(run(mixed), expected);
}

TEST_F(HostPartTest, PluginsMoveOutAfterAFaultInTheHost) {
  const ChildResult child = run_child("HostPartTest.DISABLED_PluginsMoveOutAfterAFaultInTheHost");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

// Returns which of these this process maps: a driver, and the plug-in `exposure`.
std::set<std::string> mapped_of_cuda() {
  std::set<std::string> names;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::string name = line.substr(line.rfind('/') + 1);
    const bool is_driver = name.starts_with("libcuda.so") || name.starts_with("libnvidia") ||
                           name.starts_with("nvidia") ||
                           name.find("software_device") != std::string::npos;
    if (is_driver) names.insert("a driver");
    if (name == "exposure.so") names.insert(name);
  }
  return names;
}

// Other tests leave a driver in this process, so it runs in a child. The variable says where the
// plug-in is.
TEST_F(WorkerGraphTest, DISABLED_PrintsMappedLibraries) {
  const bool is_here = std::getenv("CTXB_TEST_IN_HOST") != nullptr;
  WorkerGraphOptions with = graph_options();
  std::optional<Broker> broker;
  if (is_here) {
    with.grouping = WorkerGrouping::in_host;
    with.broker = &broker.emplace(Broker::open());
  }
  WorkerGraph graph(row({"exposure"}), with);
  graph.set_parameter(0, "stops", 1);
  graph.activate({width, height});
  std::vector<float> pixels(width * height * 4, 0.25F);
  graph.process(pixels.data(), pixels.data(), picture_job());
  EXPECT_EQ(pixels[0], 0.5F);
  for (const std::string& name : mapped_of_cuda()) std::printf("mapped: %s\n", name.c_str());
}

TEST(WorkerGraphControl, HostWithWorkersAloneLoadsNoCuda) {
  const std::string test = "WorkerGraphTest.DISABLED_PrintsMappedLibraries";
  ChildResult child = run_child(test);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, ::testing::Not(HasSubstr("mapped:")));
  child = run_child(test, {{"CTXB_TEST_IN_HOST", "1"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, AllOf(HasSubstr("mapped: a driver"), HasSubstr("mapped: exposure.so")));
}

}  // namespace
}  // namespace ctxbroker
