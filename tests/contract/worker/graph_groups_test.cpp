// SPDX-License-Identifier: Apache-2.0
// A graph whose plug-ins are in several workers does what the same graph does in this process, and
// a crash ends the plug-ins of one worker alone.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "ctxbroker/manifest.hpp"
#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkerGroupsTest : public WorkerGraphTest {
 protected:
  ~WorkerGroupsTest() override { std::filesystem::remove_all(folder_); }

  WorkerGraphOptions grouped(WorkerGrouping grouping) {
    WorkerGraphOptions made = graph_options();
    made.grouping = grouping;
    return made;
  }
  // The process of each node.
  static std::vector<std::size_t> processes(const WorkerGraph& graph, std::size_t nodes) {
    std::vector<std::size_t> all;
    for (std::size_t n = 0; n < nodes; ++n) all.push_back(graph.process_of(n));
    return all;
  }
  const std::filesystem::path& folder() {
    std::filesystem::create_directory(folder_);
    return folder_;
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("ctxb_groups_" + std::to_string(getpid()));
};

WorkerGraphDescription row(const std::vector<std::string>& plugins) {
  WorkerGraphDescription made{{{"in"}}, {{"out"}}, {}};
  for (const std::string& plugin : plugins) {
    made.nodes.push_back(
        {plugin + std::to_string(made.nodes.size()), built("plugins/" + plugin + ".so"), plugin});
  }
  return made;
}

TEST(WorkerGrouping, HasNames) {
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::by_vendor,
                              WorkerGrouping::by_plugin, WorkerGrouping::each_instance}) {
    EXPECT_EQ(parse_worker_grouping(to_string(grouping)), grouping);
  }
  EXPECT_EQ(parse_worker_grouping("alone"), std::nullopt);
}

TEST_F(WorkerGroupsTest, PutsPluginsIntoProcesses) {
  const auto of = [&](const std::vector<std::string>& plugins, WorkerGrouping grouping) {
    const WorkerGraph graph(row(plugins), grouped(grouping));
    return processes(graph, plugins.size());
  };
  const std::vector<std::string> plugins{"exposure", "exposure", "vignette", "exposure"};
  EXPECT_THAT(of(plugins, WorkerGrouping::together), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(of(plugins, WorkerGrouping::by_vendor), ElementsAre(0, 0, 0, 0));
  // The last one cannot begin before the vignette has ended.
  EXPECT_THAT(of(plugins, WorkerGrouping::by_plugin), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(of(plugins, WorkerGrouping::each_instance), ElementsAre(0, 1, 2, 3));
  WorkerGraphDescription two_vendors = row({"exposure", "vignette"});
  two_vendors.nodes.push_back({"foreign", built("test_plugins/behaviours.so"), "affine"});
  const WorkerGraph graph(two_vendors, grouped(WorkerGrouping::by_vendor));
  EXPECT_THAT(processes(graph, 3), ElementsAre(0, 0, 1));
  EXPECT_EQ(graph.processes(), 2U);
  const WorkerGraph unknown(
      {{{"in"}},
       {{"out"}},
       {node_of("deaths", "test_plugins/"), node_of("crashes", "test_plugins/")}},
      grouped(WorkerGrouping::by_vendor));
  EXPECT_THAT(processes(unknown, 2), ElementsAre(0, 1));  // neither says who has made it
  EXPECT_NE(graph.process_id(0), graph.process_id(2));
  EXPECT_EQ(graph.process_id(0), graph.process_id(1));
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.process_of(3)); });
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.process_id(3)); });
}

// Two instances that do not read from each other share a process, unless that would be a circle.
TEST_F(WorkerGroupsTest, BranchesShareAProcess) {
  const WorkerGraphDescription graph{{{"in"}},
                                     {{"out"}},
                                     {node_of("exposure"),
                                      node_of("blur"),
                                      {"again", built("plugins/exposure.so"), "exposure"},
                                      node_of("merge")},
                                     {{"in", "exposure"},
                                      {"in", "again"},
                                      {"exposure", "blur"},
                                      {"blur", "merge.a"},
                                      {"again", "merge.b"},
                                      {"merge", "out"}}};
  WorkerGraph there(graph, grouped(WorkerGrouping::by_plugin));
  EXPECT_THAT(processes(there, 4), ElementsAre(0, 1, 0, 2));
  InProcess here(graph);
  for (std::size_t node : {0U, 2U}) {
    here.instances[node].set_parameter("stops", 1.0 + static_cast<double>(node));
    there.set_parameter(node, "stops", 1.0 + static_cast<double>(node));
  }
  here.activate({width, height});
  there.activate({width, height});
  const auto input = noise(width * height * 4, 1);
  std::vector<float> expected(input.size()), got = input;
  here.graph->process(input.data(), expected.data(), picture_job());
  there.process(got.data(), got.data(), picture_job());  // in place
  EXPECT_EQ(got, expected);
}

WorkerGraphDescription late_and_early() {
  return {{{"in"}},
          {{"late"}, {"early"}},
          {node_of("gain"), node_of("fir"), node_of("mix")},
          {{"in", "gain"},
           {"gain", "fir"},
           {"fir", "mix.in_1"},
           {"gain", "mix.in_2"},
           {"mix", "late"},
           {"gain", "early"}}};
}

class GroupedSoundTest : public WorkerGroupsTest,
                         public ::testing::WithParamInterface<std::uint32_t> {};

// A branch that is late meets one that is not, in a plug-in and at the host's outputs.
TEST_P(GroupedSoundTest, IsTheSame) {
  GraphOptions how;
  how.jobs_in_flight = GetParam();
  InProcess here(late_and_early());
  here.instances[1].set_parameter("taps", 65);
  here.activate({block, channels, 48000}, how);
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.graph = how;
  WorkerGraph there(late_and_early(), with);
  there.set_parameter(1, "taps", 65);
  there.activate({block, channels, 48000});
  EXPECT_EQ(there.latency_frames(), here.graph->latency_frames());
  EXPECT_GT(there.latency_frames(), 0U);
  EXPECT_EQ(there.latency_before(1), here.graph->latency_before(1));
  EXPECT_EQ(there.latency_before(2), here.graph->latency_before(2));
  constexpr std::size_t jobs = 12, samples = std::size_t{block} * channels;
  std::vector<std::vector<float>> expected(2 * jobs, std::vector<float>(samples)), got = expected;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < jobs; ++i) {
    const auto input = noise(samples, static_cast<unsigned>(i));
    JobInfo job{block, channels, static_cast<std::int64_t>(i) * block, 48000};
    job.discontinuity = i == 7;
    WorkerParameterChange change{0, 0, 3, -12, block, 0};
    here.graph->process({{input.data()}, {expected[2 * i].data(), expected[2 * i + 1].data()}}, job,
                        {{{&here.instances[0], 0, 3, -12, block, 0}}, {}});
    last = there.submit({{input.data()}, {got[2 * i].data(), got[2 * i + 1].data()}}, job,
                        {{change}, {}});
    EXPECT_EQ(there.parameter_value(0, "gain_db"), here.instances[0].parameter_value("gain_db"));
    if (GetParam() == 1) {
      EXPECT_EQ(there.finish(last), JobOutcome::done);
    }
  }
  EXPECT_EQ(there.finish(last), JobOutcome::done);
  EXPECT_EQ(got, expected);
  EXPECT_NE(got[4], got[5]);
  error_of(ErrorKind::invalid_argument,
           [&] { static_cast<void>(there.output_extents(picture_job())); });
}

INSTANTIATE_TEST_SUITE_P(InFlight, GroupedSoundTest, ::testing::Values(1, 3));

TEST_F(WorkerGroupsTest, PicturesAndTilesAreTheSame) {
  constexpr std::uint32_t wide = 64, high = 48;
  const WorkerGraphDescription graph{{{"in"}},
                                     {{"out"}, {"sharp"}},
                                     {node_of("exposure"), node_of("blur"), node_of("merge")},
                                     {{"in", "exposure"},
                                      {"exposure", "blur"},
                                      {"blur", "merge.a"},
                                      {"exposure", "merge.b"},
                                      {"merge", "out"},
                                      {"exposure", "sharp"}}};
  InProcess here(graph);
  WorkerGraph there(graph, grouped(WorkerGrouping::each_instance));
  here.instances[0].set_parameter("stops", 1.5);
  there.set_parameter(0, "stops", 1.5);
  here.activate({wide, high});
  there.activate({wide, high});
  JobInfo job{wide, high};
  const auto compare = [&](const std::vector<float>& input, std::size_t samples) {
    std::vector<float> expected(samples), sharp(samples), got(samples), got_sharp(samples);
    here.graph->process({{input.data()}, {expected.data(), sharp.data()}}, job);
    const auto number = there.submit({{input.data()}, {got.data(), got_sharp.data()}}, job);
    EXPECT_EQ(there.finish(number), JobOutcome::done);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got_sharp, sharp);
    EXPECT_NE(got, got_sharp);
  };
  compare(noise(wide * high * 4, 7), wide * high * 4);
  for (const ImageRegion& region :
       {ImageRegion{16, 16, 16, 8}, ImageRegion{0, 0, wide, 8}, ImageRegion{60, 40, 4, 8}}) {
    job.region = region;
    error_of(ErrorKind::invalid_argument, [&] {  // the host does not know how much it has to give
      there.process(nullptr, nullptr, job);
    });
    const ImageRegion needed = there.input_regions(job)[0],
                      known = here.graph->input_regions(job)[0];
    EXPECT_EQ(needed.x, known.x);
    EXPECT_EQ(needed.y, known.y);
    EXPECT_EQ(needed.width, known.width);
    EXPECT_EQ(needed.height, known.height);
    EXPECT_GT(needed.height, region.height);
    compare(noise(std::size_t{needed.width} * needed.height * 4, 3),
            std::size_t{region.width} * region.height * 4);
  }
  EXPECT_EQ(there.output_extents(job)[0].width, wide);
  job.width = 3 * wide;  // a part of a picture that is larger than all buffers
  job.region = {2 * wide, 8, 16, 16};
  const ImageRegion needed = there.input_regions(job)[0];
  EXPECT_EQ(needed.width, here.graph->input_regions(job)[0].width);
  compare(noise(std::size_t{needed.width} * needed.height * 4, 3), std::size_t{16} * 16 * 4);
  job.width = wide;
  job.region = {60, 40, 8, 8};
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(there.input_regions(job)); }),
      HasSubstr("8 x 8 pixels at (60, 40)"));
}

// The process in front works once for each frame that the one behind it needs.
TEST_F(WorkerGroupsTest, FramesAroundAreTheSame) {
  const WorkerGraphDescription graph = row({"exposure", "time_blur", "time_blur"});
  InProcess here(graph);
  WorkerGraph there(graph, grouped(WorkerGrouping::each_instance));
  here.instances[0].set_parameter("stops", 1);
  there.set_parameter(0, "stops", 1);
  here.instances[1].set_parameter("before", 2);
  there.set_parameter(1, "before", 2);
  here.activate({width, height});
  there.activate({width, height});
  const auto& wanted = here.graph->job_inputs();
  const auto& inputs = there.job_inputs();
  ASSERT_EQ(inputs.size(), wanted.size());
  EXPECT_GT(inputs.size(), 4U);
  std::vector<std::vector<float>> frames;
  JobBuffers buffers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(inputs[i].frame, wanted[i].frame);
    frames.push_back(noise(width * height * 4, static_cast<unsigned>(i)));
  }
  for (const auto& frame : frames) buffers.inputs.push_back(frame.data());
  std::vector<float> expected(frames[0].size()), got(frames[0].size());
  buffers.outputs = {expected.data()};
  here.graph->process(buffers, picture_job(5));
  buffers.outputs = {got.data()};
  there.process(buffers, picture_job(5));
  EXPECT_EQ(got, expected);
}

TEST_F(WorkerGroupsTest, ResultsComeFromAnyProcess) {
  const WorkerGraphDescription graph{
      {{"in"}},
      {{"out"}, {"levels"}},
      {node_of("spectrum"), node_of("gain")},
      {{"in", "spectrum"}, {"in", "gain"}, {"gain", "out"}, {"spectrum", "levels"}}};
  InProcess here(graph);
  WorkerGraph there(graph, grouped(WorkerGrouping::each_instance));
  here.activate({block, channels, 48000});
  there.activate({block, channels, 48000});
  const std::uint32_t bytes = there.description(0).outputs[0].result_bytes;
  ASSERT_GT(bytes, 0U);
  const JobInfo job{block, channels, 0, 48000};
  const auto input = noise(std::size_t{block} * channels, 1);
  std::vector<float> sound(input.size());
  std::vector<std::byte> expected(bytes), got(bytes);
  here.graph->process({{input.data()}, {sound.data(), expected.data()}}, job);
  there.process({{input.data()}, {sound.data(), got.data()}}, job);
  EXPECT_EQ(got, expected);
}

// Graphs by seed: each node reads from what is there already, and everything goes to the host.
class RandomGraph {
 public:
  RandomGraph(unsigned seed, const std::vector<std::string>& single, const std::string& joining,
              const std::vector<const char*>& joined)
      : state_(seed) {
    std::vector<std::string> sources{"in"}, unread;
    graph.inputs = {{"in"}};
    for (unsigned n = 0, count = 3 + draw(4); n < count; ++n) {
      const bool joins = n > 0 && draw(2) == 0;
      const std::string plugin =
          joins ? joining : single[draw(static_cast<unsigned>(single.size()))];
      const std::string name = plugin + std::to_string(n);
      graph.nodes.push_back({name, built("plugins/" + plugin + ".so"), plugin});
      for (const char* port : joins ? joined : std::vector<const char*>{""}) {
        const std::string& from = sources[draw(static_cast<unsigned>(sources.size()))];
        graph.edges.push_back({from, name + port});
        unread.erase(std::remove(unread.begin(), unread.end(), from), unread.end());
      }
      sources.push_back(name);
      unread.push_back(name);
    }
    if (std::none_of(graph.edges.begin(), graph.edges.end(),
                     [](const GraphEdge& edge) { return edge.from == "in"; })) {
      graph.edges.front().from = "in";
    }
    for (const std::string& name : unread) {
      graph.outputs.push_back({"out" + std::to_string(graph.outputs.size())});
      graph.edges.push_back({name, graph.outputs.back().name});
    }
  }

  unsigned draw(unsigned below) {
    state_ = state_ * 1664525 + 1013904223;
    return (state_ >> 16) % below;
  }

  WorkerGraphDescription graph;

 private:
  unsigned state_;
};

class AnyGraphTest : public WorkerGroupsTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  WorkerGrouping grouping() const {
    return GetParam() % 2 == 0 ? WorkerGrouping::by_plugin : WorkerGrouping::each_instance;
  }
  static JobBuffers buffers_of(const std::vector<float>& input,
                               std::vector<std::vector<float>>& outputs) {
    JobBuffers buffers{{input.data()}, {}};
    for (auto& output : outputs) buffers.outputs.push_back(output.data());
    return buffers;
  }
};

TEST_P(AnyGraphTest, GivesTheSamePictures) {
  RandomGraph random(GetParam(), {"exposure", "blur", "vignette"}, "merge", {".a", ".b"});
  InProcess here(random.graph);
  WorkerGraph there(random.graph, grouped(grouping()));
  here.activate({width, height});
  there.activate({width, height});
  for (int round = 0; round < 4; ++round) {
    JobInfo job = picture_job(round);
    std::size_t samples = std::size_t{width} * height * 4, given = samples;
    if (round > 0) {
      job.region = {static_cast<std::int32_t>(random.draw(width)),
                    static_cast<std::int32_t>(random.draw(height)), 1, 1};
      job.region.width += random.draw(width - static_cast<unsigned>(job.region.x));
      job.region.height += random.draw(height - static_cast<unsigned>(job.region.y));
      samples = std::size_t{job.region.width} * job.region.height * 4;
      const ImageRegion known = here.graph->input_regions(job)[0];
      const ImageRegion needed = there.input_regions(job)[0];
      EXPECT_EQ(needed.width, known.width);
      given = std::size_t{needed.width} * needed.height * 4;
    }
    const auto input = noise(given, static_cast<unsigned>(round));
    std::vector<std::vector<float>> expected(random.graph.outputs.size(),
                                             std::vector<float>(samples));
    auto got = expected;
    here.graph->process(buffers_of(input, expected), job);
    const JobBuffers buffers = buffers_of(input, got);
    there.finish(there.submit(buffers, job));
    EXPECT_EQ(got, expected) << "round " << round;
  }
}

// It may be later by some frames, all of it by the same number.
TEST_P(AnyGraphTest, GivesTheSameSound) {
  RandomGraph random(GetParam(), {"gain", "fir"}, "mix", {".in_1", ".in_2"});
  InProcess here(random.graph);
  WorkerGraph there(random.graph, grouped(grouping()));
  for (std::size_t n = 0; n < random.graph.nodes.size(); ++n) {
    if (random.graph.nodes[n].plugin != "fir") continue;
    const double taps = 1 + 2 * random.draw(60);
    here.instances[n].set_parameter("taps", taps);
    there.set_parameter(n, "taps", taps);
  }
  here.activate({block, channels, 48000});
  there.activate({block, channels, 48000});
  const std::uint64_t before = here.graph->latency_frames(), now = there.latency_frames();
  ASSERT_GE(now, before);
  const std::size_t ends = random.graph.outputs.size();
  std::vector<std::vector<float>> expected(ends), got(ends);  // of the first channel
  for (int number = 0; number < 8; ++number) {
    const JobInfo job{block, channels, std::int64_t{number} * block, 48000};
    const auto input = noise(std::size_t{block} * channels, static_cast<unsigned>(number));
    std::vector<std::vector<float>> one(ends, std::vector<float>(input.size())), other = one;
    here.graph->process(buffers_of(input, one), job);
    there.process(buffers_of(input, other), job);
    for (std::size_t end = 0; end < ends; ++end) {
      expected[end].insert(expected[end].end(), one[end].begin(), one[end].begin() + block);
      got[end].insert(got[end].end(), other[end].begin(), other[end].begin() + block);
    }
  }
  for (std::size_t end = 0; end < ends; ++end) {
    expected[end].insert(expected[end].begin(), now - before, 0.0F);
    expected[end].resize(got[end].size());
    EXPECT_EQ(got[end], expected[end]) << "output " << end << ", later by " << now - before;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyGraphTest, ::testing::Range(1U, 13U));

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
    EXPECT_EQ(there.ends(1), ends);
    ASSERT_TRUE(there.last_end(1));
    ASSERT_EQ(there.last_end(1)->running.size(), 1U);
    if (ends == 2) break;
    there.set_parameter(1, "way", 0);
    there.process(input.data(), got.data(), picture_job());
    EXPECT_EQ(got, expected);
  }
  EXPECT_EQ(there.state(1), WorkerState::quarantined);
  EXPECT_EQ(there.state(0), WorkerState::ready);
  EXPECT_EQ(there.process_id(0), before);
  EXPECT_EQ(there.process_id(2), behind);
  EXPECT_EQ(there.ends(0) + there.ends(2), 0U);
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
  EXPECT_EQ(together.ends(0), 1U);
}

TEST_F(WorkerGroupsTest, AStandByAndARetryServeEachProcess) {
  WorkerGraphOptions with = grouped(WorkerGrouping::each_instance);
  with.stand_by = true;
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

// What was delayed is forgotten everywhere.
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
TEST_F(LostStepTest, ARefusedJobChangesNothing) {
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
TEST_F(WorkerGroupsTest, NeedsNoManifestAndBelievesNone) {
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

TEST_F(WorkerGroupsTest, RefusesWhatItCannotDo) {
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
              HasSubstr("other ends"));
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
  EXPECT_EQ(there.ends(0) + there.ends(1), 0U);
  there.deactivate();
  throws(ErrorKind::wrong_state, {{pixels.data()}, {pixels.data()}}, picture_job());
}

// The host cuts samples out of pictures where a process says so. It reads nothing beyond them.
TEST_F(WorkerGroupsTest, RegionsThatCannotBeAreRefused) {
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
TEST_F(WorkerGroupsTest, DelaysThatTakeAllMemoryAreRefused) {
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
  EXPECT_THAT(error_of(ErrorKind::out_of_memory,
                       [&] {
                         graph.activate({block, channels, 48000});
                       }),
              HasSubstr("the plug-ins report such latencies"));
  EXPECT_FALSE(graph.active());
  EXPECT_EQ(graph.ends(0) + graph.ends(1) + graph.ends(2), 0U);
}

// From one process of the host's into several.
TEST_F(WorkerGroupsTest, AGraphMovesIntoSeveral) {
  InProcess here(row({"exposure", "blur"}));
  here.instances[0].set_parameter("stops", 2);
  here.activate({width, height});
  const auto input = noise(width * height * 4, 3);
  std::vector<float> expected(input.size()), got(input.size());
  here.graph->process(input.data(), expected.data(), picture_job());
  WorkerGraph there =
      WorkerGraph::from(std::move(*here.graph), grouped(WorkerGrouping::each_instance));
  EXPECT_EQ(there.processes(), 2U);
  there.process(input.data(), got.data(), picture_job());
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace ctxbroker
