// SPDX-License-Identifier: Apache-2.0
// A graph whose plug-ins are in several workers does what the same graph does in this process.
#include <algorithm>

#include "groups_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WorkerGrouping, GroupingNamesAreParsedAndPrinted) {
  for (const auto grouping :
       {WorkerGrouping::together, WorkerGrouping::by_vendor, WorkerGrouping::by_plugin,
        WorkerGrouping::each_instance, WorkerGrouping::in_host}) {
    EXPECT_EQ(parse_worker_grouping(to_string(grouping)), grouping);
  }
  EXPECT_EQ(parse_worker_grouping("alone"), std::nullopt);
}

TEST_F(WorkerGroupsTest, GroupingDecidesTheProcessOfEachPlugin) {
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
TEST_F(WorkerGroupsTest, IndependentBranchesShareAProcess) {
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

class GroupedSoundTest : public WorkerGroupsTest,
                         public ::testing::WithParamInterface<std::uint32_t> {};

// A branch that is late meets one that is not, in a plug-in and at the host's outputs.
TEST_P(GroupedSoundTest, GroupedSoundIsTheSame) {
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

TEST_F(WorkerGroupsTest, GroupedPicturesAndTilesAreTheSame) {
  constexpr std::uint32_t wide = 64, high = 48;
  const WorkerGraphDescription graph = sharp_and_blurred();
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
TEST_F(WorkerGroupsTest, GroupedFramesAroundAJobAreTheSame) {
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

TEST_F(WorkerGroupsTest, ResultsOfAnyProcessReachTheHost) {
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
  // From seed 13 on, some of the plug-ins are in the host.
  WorkerGraph in_processes(RandomGraph& random, Broker& host) {
    WorkerGraphOptions how =
        grouped(GetParam() % 2 == 0 ? WorkerGrouping::by_plugin : WorkerGrouping::each_instance);
    how.broker = &host;
    WorkerGraphDescription graph = random.graph;
    for (WorkerNode& node : graph.nodes) {
      if (GetParam() > 12 && random.draw(2) == 0) node.grouping = WorkerGrouping::in_host;
    }
    return WorkerGraph(graph, how);
  }
  static JobBuffers buffers_of(const std::vector<float>& input,
                               std::vector<std::vector<float>>& outputs) {
    JobBuffers buffers{{input.data()}, {}};
    for (auto& output : outputs) buffers.outputs.push_back(output.data());
    return buffers;
  }
};

TEST_P(AnyGraphTest, RandomGroupedGraphGivesTheSamePictures) {
  RandomGraph random(GetParam(), {"exposure", "blur", "vignette"}, "merge", {".a", ".b"});
  InProcess here(random.graph);
  WorkerGraph there = in_processes(random, here.broker);
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
TEST_P(AnyGraphTest, RandomGroupedGraphGivesTheSameSound) {
  RandomGraph random(GetParam(), {"gain", "fir"}, "mix", {".in_1", ".in_2"});
  InProcess here(random.graph);
  WorkerGraph there = in_processes(random, here.broker);
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

INSTANTIATE_TEST_SUITE_P(Seeds, AnyGraphTest, ::testing::Range(1U, 25U));

// From the host's process into several.
TEST_F(WorkerGroupsTest, GraphMovesFromTheHostIntoSeveralProcesses) {
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

TEST_F(WorkerGroupsTest, HostGroupsTheNodesOfAMovingGraph) {
  InProcess here(row({"exposure", "blur"}));
  here.activate({width, height});
  const std::vector each(2, WorkerGrouping::each_instance);
  const auto move = [&](const std::vector<WorkerGrouping>& nodes) {
    return WorkerGraph::from(std::move(*here.graph), graph_options(), nodes).processes();
  };
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] { static_cast<void>(move({WorkerGrouping::together})); }),
              HasSubstr("1 groupings for 2 nodes"));
  EXPECT_EQ(move(each), 2U);
}

}  // namespace
}  // namespace ctxbroker
