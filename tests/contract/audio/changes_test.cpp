// SPDX-License-Identifier: Apache-2.0
// Changes of parameters within a block, and the transport.
#include <algorithm>
#include <cmath>

#include "audio_fixture.hpp"
#include "support/allocation_count.hpp"

namespace ctxbroker::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChangesTest : public AudioTest {
 protected:
  ChangesTest() {
    description.outputs = {{"out"}};
    values = &probe("values", "values");
    edge("values", "out");
  }
  // Returns the plug-in's records that begin with "steps".
  std::vector<std::string> talk() const {
    std::vector<std::string> texts = said("plugin");
    texts.erase(std::remove_if(texts.begin(), texts.end(),
                               [](const std::string& text) { return text.rfind("steps", 0) != 0; }),
                texts.end());
    return texts;
  }
  // Runs one block of `frames` silent frames.
  void process(std::uint32_t frames, const JobEvents& events) {
    Graph graph(broker, description, {longest, channels, rate});
    std::vector<float> out(std::size_t{frames} * channels);
    JobInfo job;
    job.width = frames;
    job.height = channels;
    job.sample_rate = rate;
    graph.process({{}, {out.data()}}, job, events);
  }
  std::string refusal(const ParameterChange& change, ErrorKind kind = ErrorKind::invalid_argument) {
    JobEvents events;
    events.changes = {change};
    return error_text(kind, [&] { process(100, events); });
  }
  PluginInstance* values;
};

// Jumps, ramps that meet, a ramp that another one ends early, a ramp that is longer than a block,
// and changes in the first frame and in the last.
TEST_F(ChangesTest, ParameterHasTheHostsValueAtEveryFrame) {
  const Changes changes = {{values, 0, 0, 0.1},
                           {values, 0, 100, -1, 50, 0.3},
                           {values, 0, 150, 1.7, 33, -1},
                           {values, 0, 500, 5, 1000, 1},
                           {values, 0, 700, 0.25},
                           {values, 0, 701, 1.0 / 3},
                           {values, 0, 900, 1000, 7001, -1000},
                           {values, 0, 8999, 42}};
  constexpr std::size_t frames = 9000;
  std::vector<double> expected(frames);
  double held = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < frames; ++i) {
    while (next < changes.size() && changes[next].offset == static_cast<std::int64_t>(i)) ++next;
    const ParameterChange& now = changes[next - 1];
    const double passed = static_cast<double>(i) - static_cast<double>(now.offset);
    held = passed < now.ramp_frames ? now.from + (now.value - now.from) * (passed / now.ramp_frames)
                                    : now.value;
    expected[i] = held;
  }
  Signal first;
  for (const auto& lengths : block_lengths) {
    SCOPED_TRACE("blocks of " + std::to_string(lengths[0]));
    values->set_parameter("value", 7);  // and the first change overrides it
    const Signal out = run_once({}, frames, lengths, changes);
    EXPECT_EQ(values->parameter("value"), 42);
    if (first.empty()) {
      first = out;
      for (std::size_t i = 0; i < frames; ++i) {
        ASSERT_EQ(out[0][i], static_cast<float>(expected[i])) << i;
      }
    }
    ASSERT_TRUE(same_bytes(out, first));
  }
  for (const std::uint32_t in_flight : {2U, 5U}) {
    EXPECT_TRUE(same_bytes(run_once({}, frames, {333, 64}, changes, in_flight), first));
  }
}

TEST_F(ChangesTest, PluginSeesTheHostsListOfChangesUnaltered) {
  JobEvents events;
  events.changes = {{values, 0, -20, 1, 30, 0.5}, {values, 3, 0, 1},  {values, 1, 0, 4},
                    {values, 0, 50, 2},           {values, 1, 99, 9}, {values, 0, 99, 3, 7, 2}};
  process(100, events);
  EXPECT_THAT(talk(),
              ElementsAre("steps 4, 0 at 0 from 0.5 in -20 to 10: 1, 3 at 0: 1, 1 at 0: 4, 0 at "
                          "50: 2, 1 at 99: 9, 0 at 99 from 2 in 99 to 106: 3, no transport"));
  EXPECT_EQ(values->parameter("steps"), 9);
  EXPECT_DOUBLE_EQ(values->parameter("value"), 2 + 1.0 / 7) << "the next block's first value";
}

// gain looks at the value of the first frame only.
TEST_F(ChangesTest, PluginThatIgnoresChangesFollowsThemOncePerBlock) {
  description = {};
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  PluginInstance& gain = add("gain", "gain");
  edge("in", "gain");
  edge("gain", "out");
  const Changes changes = {{&gain, 0, 150, 20}, {&gain, 0, 300, 0, 200, 20}};
  const Signal out = run_once({Signal(2, std::vector<float>(600, 1))}, 600, {100}, changes);
  const float expected[] = {1, 1, 10, 10, std::sqrt(10.0F), 1};
  for (std::size_t i = 0; i < 600; ++i) ASSERT_NEAR(out[0][i], expected[i / 100], 1e-5) << i;
}

TEST_F(ChangesTest, ParametersCanBeSetBetweenJobsWithChanges) {
  const Changes changes = {{values, 0, 10, 5}};
  EXPECT_EQ(run_once({}, 20, {20}, changes)[0][19], 5);
  EXPECT_EQ(run_once({}, 20, {20})[0][0], 5) << "it stays";
  values->set_parameter("value", 6);
  EXPECT_EQ(run_once({}, 20, {20})[0][0], 6);
}

TEST_F(ChangesTest, OnlyTheInstanceThatIsNamedChanges) {
  PluginInstance& other = probe("other", "values");
  description.outputs.push_back({"other out"});
  edge("other", "other out");
  Graph graph(broker, description, {longest, channels, rate});
  const auto out = run(graph, {}, 20, {7}, {{&other, 0, 5, 3}});
  EXPECT_EQ(out[0][0], std::vector<float>(20, 0.0F));
  EXPECT_EQ(out[1][0][4], 0);
  EXPECT_EQ(out[1][0][5], 3);
}

TEST_F(ChangesTest, InvalidChangeIsRefusedWithItsReason) {
  EXPECT_THAT(refusal({nullptr, 0, 0, 1}), HasSubstr("a change has no instance"));
  EXPECT_THAT(refusal({values, 4, 0, 1}), HasSubstr("names parameter 4, and the plug-in has 4"));
  EXPECT_THAT(refusal({values, 2, 0, 1}), HasSubstr("\"constant\", at frame 0: the parameter is "
                                                    "not automatable"));
  EXPECT_THAT(refusal({values, 0, 0, 1001}, ErrorKind::parameter_value), HasSubstr("1001"));
  EXPECT_THAT(refusal({values, 0, 0, std::nan("")}, ErrorKind::parameter_value),
              HasSubstr("\"value\""));
  EXPECT_THAT(refusal({values, 0, 0, 1, 10, -1001}, ErrorKind::parameter_value),
              HasSubstr("-1001"));
  EXPECT_THAT(refusal({values, 1, 0, 0.5}, ErrorKind::parameter_value), HasSubstr("0.5"));
  EXPECT_THAT(refusal({values, 1, 0, 5, 10, 0}),
              HasSubstr("it is a ramp, and the parameter takes integer values; let it jump"));
  EXPECT_THAT(refusal({values, 0, 100, 1}), HasSubstr("at frame 100: the block has 100 frames"));
  EXPECT_THAT(refusal({values, 0, -1, 1}), HasSubstr("a jump has to lie within the block"));
  EXPECT_THAT(refusal({values, 0, -10, 1, 10, 0}),
              HasSubstr("its ramp of 10 frames ends before the block; leave it out"));
  EXPECT_THAT(refusal({values, 0, INT64_MIN, 1, 10, 0}), HasSubstr("ends before the block"));
  PluginInstance& stranger = add("stranger", "gain");
  description.nodes.pop_back();
  EXPECT_THAT(refusal({&stranger, 0, 0, 1}),
              HasSubstr("a change is for plug-in gain, whose instance is not in this graph"));
  EXPECT_EQ(values->parameter("value"), 0) << "nothing of it was done";
  JobEvents events;
  events.changes = {{values, 0, 5, 1}, {values, 0, 4, 1}};
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { process(100, events); }),
              HasSubstr("a change at frame 4 follows one at frame 5; sort the changes"));
  events.changes.assign(1025, {values, 0, 5, 1});
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { process(100, events); }),
              HasSubstr("1025 changes, and the graph takes 1024 (GraphOptions::changes_per_job)"));
  events.changes.pop_back();
  process(100, events);
}

TEST_F(ChangesTest, TheTransportReachesThePlugin) {
  values->set_parameter("talks", 1);
  JobEvents events;
  events.transport.emplace();
  process(10, events);
  Transport& song = *events.transport;
  song.playing = song.looping = true;
  song.tempo = 132.5;
  song.tempo_step = 0.25;
  song.time_signature = {7, 8};
  song.beats = {12.5, 10.5, 3, {8, 16}};
  song.seconds = {6, {4, 8}};
  process(10, events);
  EXPECT_THAT(talk(),
              ElementsAre("steps 0, flags 0, tempo 0 + 0, bar of 0/0, beats 0 in bar 0 from 0 loop "
                          "0 to 0, seconds 0 loop 0 to 0",
                          "steps 0, flags 125, tempo 132.5 + 0.25, bar of 7/8, beats 12.5 in bar 3 "
                          "from 10.5 loop 8 to 16, seconds 6 loop 4 to 8"));
}

TEST_F(ChangesTest, InvalidTransportIsRefused) {
  const auto refused = [&](const Transport& song) {
    JobEvents events;
    events.transport = song;
    return error_text(ErrorKind::invalid_argument, [&] { process(10, events); });
  };
  Transport song;
  song.tempo = 0;
  EXPECT_THAT(refused(song), HasSubstr("the transport's tempo is not above 0"));
  song.tempo.reset();
  song.tempo_step = 1;
  EXPECT_THAT(refused(song), HasSubstr("there is no tempo"));
  song = {};
  song.time_signature = {4, 0};
  EXPECT_THAT(refused(song), HasSubstr("time signature has a 0"));
  song = {};
  song.beats = {0, 0, 0, {2, 1}};
  EXPECT_THAT(refused(song), HasSubstr("its loop ends before it begins"));
  song = {};
  song.seconds = {std::nan(""), {}};
  EXPECT_THAT(refused(song), HasSubstr("position in seconds is not finite"));
}

// The driver may allocate, so the same jobs without changes are the measure.
TEST_F(ChangesTest, ChangesAllocateNothing) {
  if (!bench::allocations_are_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  PluginInstance& gain = add("gain", "gain");
  description.nodes = {{"gain", &gain}};
  Graph graph(broker, {&gain}, {longest, channels, rate});
  std::vector<float> samples(64 * 2);
  const JobBuffers buffers{{samples.data()}, {samples.data()}};
  JobInfo job;
  job.width = 64;
  job.height = 2;
  job.sample_rate = rate;
  JobEvents none, many;
  for (int i = 0; i < 1000; ++i) many.changes.push_back({&gain, 0, i / 20, 0.5, 30, 1});
  many.transport.emplace();
  const auto allocations = [&](const JobEvents& events) {
    const std::uint64_t before = bench::allocations_of_this_thread();
    for (int i = 0; i < 100; ++i) graph.process(buffers, job, events);
    return bench::allocations_of_this_thread() - before;
  };
  allocations(many);
  EXPECT_LE(allocations(many), allocations(none) + 20);
}

TEST(ImageChangesTest, ChangesForAnImageGraphAreRefused) {
  SampleRunner runner;
  PluginInstance exposure = runner.create({"exposure"});
  exposure.activate({4, 4});
  Graph graph(runner.broker(), {&exposure}, {4, 4});
  float pixel[4] = {};
  JobEvents events;
  events.changes = {{&exposure, 0, 0, 1}};
  EXPECT_THROW(graph.process(pixel, pixel, {}, events), Error);
  events.changes.clear();
  graph.process(pixel, pixel, {}, events);
}

}  // namespace
}  // namespace ctxbroker::test
