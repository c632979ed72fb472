// SPDX-License-Identifier: Apache-2.0
// Branches of different latency stay aligned to the sample.
#include <map>

#include "audio_fixture.hpp"
#include "reference_plugins.hpp"

namespace ctxbroker::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A compressor that lets everything through, unchanged and late.
ParameterList late_by(std::size_t frames) {
  return {{"ratio", 1}, {"look_ahead", static_cast<double>(frames) / rate * 1000}};
}

class LatencyTest : public AudioTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  // in -> late -> difference.a, in -> difference.b
  void two_branches(std::size_t frames) {
    description.inputs = {{"in"}};
    description.outputs = {{"out"}, {"late out"}};
    add("late", "compressor", late_by(frames), {}, GetParam());
    probe("both", "difference", GetParam());
    edge("in", "late");
    edge("late", "both.a");
    edge("in", "both.b");
    edge("both", "out");
    edge("late", "late out");
  }
};

TEST_P(LatencyTest, AParallelBranchStaysAlignedToTheSample) {
  constexpr std::size_t frames = 6000;
  const Signal in = signal_of(test_audio(2, frames, 8));
  const Signal silence(2, std::vector<float>(frames));
  for (const std::size_t late : {1U, 96U, 2400U}) {
    description = {};
    two_branches(late);
    for (const auto& lengths : block_lengths) {
      for (const std::uint32_t in_flight : {1U, 4U}) {
        if (lengths[0] < 7 && (in_flight == 1 || late != 96)) continue;  // many jobs take long
        SCOPED_TRACE("late by " + std::to_string(late) + ", blocks of " +
                     std::to_string(lengths[0]) + ", in flight " + std::to_string(in_flight));
        GraphOptions options;
        options.jobs_in_flight = in_flight;
        Graph graph(broker, description, {longest, channels, rate}, options);
        EXPECT_EQ(graph.latency_frames(), late);
        const auto out = run(graph, {in}, frames, lengths, {}, in_flight);
        ASSERT_TRUE(same_bytes(out[1], delayed(in, late))) << "the control: it is late";
        ASSERT_TRUE(same_bytes(out[0], silence));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Leases, LatencyTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

class LatenciesTest : public AudioTest {};

TEST_F(LatenciesTest, LatencyOfARowIsTheSumOfItsPlugins) {
  PluginInstance& one = add("one", "compressor", late_by(48));
  PluginInstance& two = add("two", "fir", {{"taps", 129}});
  PluginInstance& three = add("three", "compressor", late_by(480));
  PluginInstance& none = add("none", "gain");
  const Graph graph(broker, {&one, &two, &none, &three}, {64, 2, rate});
  EXPECT_EQ(graph.latency_frames(), 48U + 64 + 480);
  EXPECT_EQ(Graph(broker, {&none}, {64, 2, rate}).latency_frames(), 0U);
}

// The host fades at a frame of the song, behind a plug-in that is late.
TEST_F(LatenciesTest, AChangeIsMadeAtItsFrameOfTheSong) {
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  add("late", "compressor", late_by(100));
  add("later", "compressor", late_by(30));
  probe("scale", "scale");
  edge("in", "late");
  edge("late", "later");
  edge("later", "scale");
  edge("scale", "out");
  PluginInstance& scale = *instances[2];
  scale.set_parameter("value", 1);
  Graph graph(broker, description, {longest, channels, rate});
  EXPECT_EQ(graph.latency_before(0), 0U);
  EXPECT_EQ(graph.latency_before(1), 100U);
  EXPECT_EQ(graph.latency_before(2), 130U);
  EXPECT_THROW(static_cast<void>(graph.latency_before(3)), Error);
  const Changes changes = {{&scale, 0, 500 + 130, 0}};
  const Signal in(2, std::vector<float>(1000, 1));
  const Signal out = run(graph, {in}, 1000, {64, 7}, changes)[0];
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(out[0][i], i >= 130 && i - 130 < 500 ? 1 : 0) << i;
  }
}

// The branches lie in different memory, and their latencies add up: 300 + 20 against 45.
TEST_F(LatenciesTest, BranchesInDifferentLeasesAreAligned) {
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  add("first", "compressor", late_by(300));
  add("second", "compressor", late_by(20));
  // A library has one lease, so the other one's kind decides.
  add("third", "fir", {{"taps", 91}}, {}, LeaseKind::private_own);
  probe("both", "difference", LeaseKind::private_own);
  edge("in", "first");
  edge("first", "second");
  edge("in", "third");
  edge("second", "both.a");
  edge("third", "both.b");
  edge("both", "out");
  const reference::Audio audio = test_audio(2, 5000, 3);
  const Signal in = signal_of(audio);
  // The filter's own delay is its latency.
  const Signal filtered =
      signal_of(reference::fir(audio, reference::low_pass_taps(2000, rate, 91)));
  const Signal a = delayed(in, 320), b = delayed(filtered, 275);
  reference::Audio expected(2, reference::Channel(5000));
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t i = 0; i < 5000; ++i) expected[c][i] = double{a[c][i]} - b[c][i];
  }
  Signal first;
  for (const auto& lengths : block_lengths) {
    SCOPED_TRACE("blocks of " + std::to_string(lengths[0]));
    const Signal out = run_once({in}, 5000, lengths, {}, 3);
    if (first.empty()) {
      first = out;
      expect_close(out, expected);
    }
    EXPECT_TRUE(same_bytes(out, first));
  }
}

TEST_F(LatenciesTest, SideChainIsAlignedWithItsInput) {
  description.inputs = {{"in"}, {"voice"}};
  description.outputs = {{"out"}};
  add("late", "compressor", late_by(77));
  const reference::Compressor how{-40, 10, 1, 50, 0, 0};
  add("ducker", "compressor", {{"threshold", -40}, {"ratio", 10}, {"attack", 1}, {"release", 50}});
  edge("voice", "late");
  edge("late", "ducker.key");
  edge("in", "ducker");
  edge("ducker", "out");
  const reference::Audio in = test_audio(2, 6000, 1), voice = test_audio(2, 6000, 2);
  reference::Audio expected = reference::compressed(in, voice, how, rate);
  for (reference::Channel& channel : expected) {
    channel.insert(channel.begin(), 77, 0.0);
    channel.resize(6000);
  }
  for (const auto& lengths : {std::vector<std::size_t>{1}, {64, 500}, {4096}}) {
    SCOPED_TRACE(lengths[0]);
    expect_close(run_once({signal_of(in), signal_of(voice)}, 6000, lengths), expected);
  }
}

TEST_F(LatenciesTest, BypassPassesOnTheInputAndNotTheKey) {
  description.inputs = {{"key", 1}, {"in"}};
  description.outputs = {{"out"}};
  probe("bypass", "keyed_bypass");
  edge("key", "bypass.key");
  edge("in", "bypass.in");
  edge("bypass", "out");
  const Signal in = signal_of(test_audio(2, 500, 1)), key = signal_of(test_audio(1, 500, 2));
  EXPECT_TRUE(same_bytes(run_once({key, in}, 500, {64}), in));
}

TEST_F(LatenciesTest, AllOutputsOfTheHostHaveTheLargestLatency) {
  description.inputs = {{"in"}};
  description.outputs = {{"dry out"}, {"late out"}, {"later out"}};
  add("dry", "gain");
  add("late", "compressor", late_by(10));
  add("later", "compressor", late_by(1500));
  edge("in", "dry");
  edge("in", "late");
  edge("in", "later");
  edge("dry", "dry out");
  edge("late", "late out");
  edge("later", "later out");
  const Signal in = signal_of(test_audio(2, 5000, 3));
  Graph graph(broker, description, {longest, channels, rate});
  EXPECT_EQ(graph.latency_frames(), 1500U);
  for (const auto& lengths : block_lengths) {
    for (const Signal& out : run(graph, {in}, 5000, lengths)) {
      ASSERT_TRUE(same_bytes(out, delayed(in, 1500))) << "blocks of " << lengths[0];
    }
  }
}

// The compressor changes nothing, so a job that misses its deadline must sound like the others.
TEST_F(LatenciesTest, TheDrySignalOfALateJobIsAsLateAsTheOthers) {
  constexpr std::size_t late = 1500, frames = 12000;
  description.inputs = {{"key", 1}, {"in"}};
  description.outputs = {{"out"}};
  add("late", "compressor", late_by(late));
  edge("in", "late");
  edge("key", "late.key");
  edge("late", "out");
  const Signal in = signal_of(test_audio(2, frames, 3)), key = signal_of(test_audio(1, frames, 4));
  for (const std::uint32_t in_flight : {1U, 3U}) {
    GraphOptions options;
    options.late = LateJobs::dry;
    options.jobs_in_flight = in_flight;
    Graph graph(broker, description, {longest, channels, rate}, options);
    std::map<JobOutcome, int> outcomes;
    const auto play = [&](bool discontinuity) {
      Signal out(2);
      JobInfo job;
      job.height = 2;
      job.sample_rate = rate;
      job.discontinuity = discontinuity;
      for (std::size_t first = 0, block = 0; first < frames; first += job.width, ++block) {
        job.width = static_cast<std::uint32_t>(
            std::min<std::size_t>(block % 3 == 2 ? 4096 : 100 + block, frames - first));
        job.position = static_cast<std::int64_t>(first);
        job.deadline_ns = block % 2;  // none, or one that nobody can keep
        std::vector<float> both, got(std::size_t{2} * job.width);
        for (const auto& channel : in) {
          both.insert(both.end(), channel.begin() + job.position,
                      channel.begin() + job.position + job.width);
        }
        ++outcomes[graph.process({{key[0].data() + first, both.data()}, {got.data()}}, job)];
        job.discontinuity = false;
        for (std::size_t channel = 0; channel < 2; ++channel) {
          const auto begin = got.begin() + static_cast<std::ptrdiff_t>(channel * job.width);
          out[channel].insert(out[channel].end(), begin, begin + job.width);
        }
      }
      return out;
    };
    EXPECT_TRUE(same_bytes(play(false), delayed(in, late))) << in_flight;
    EXPECT_TRUE(same_bytes(play(true), delayed(in, late))) << "it begins with silence again";
    EXPECT_GT(outcomes[JobOutcome::done], 0);
    EXPECT_GT(outcomes[JobOutcome::dry], 0) << "this is what the test is about";
  }
}

TEST_F(LatenciesTest, DelaysBeginWithSilenceAfterAFailureAndWithOtherChannels) {
  description.inputs = {{"in"}};
  description.outputs = {{"dry out"}, {"late out"}};
  add("late", "compressor", late_by(100));
  probe("dry", "fails_sometimes");
  edge("in", "late");
  edge("in", "dry");
  edge("dry", "dry out");
  edge("late", "late out");
  Graph graph(broker, description, {longest, channels, rate});
  const std::vector<float> in(200, 1);
  std::vector<float> dry(200), late(200);
  // Runs a job and returns how many frames of the first channel of `dry` are silent.
  const auto silent = [&](std::uint32_t job_channels) {
    JobInfo job;
    job.width = 60;
    job.height = job_channels;
    job.sample_rate = rate;
    graph.process({{in.data()}, {dry.data(), late.data()}}, job);
    return std::count(dry.begin(), dry.begin() + 60, 0.0F);
  };
  EXPECT_EQ(silent(2), 60);
  EXPECT_EQ(silent(2), 40);
  EXPECT_THROW(silent(2), Error);
  EXPECT_EQ(silent(2), 60);
  EXPECT_EQ(silent(1), 60);
  EXPECT_THROW(silent(1), Error);
  EXPECT_EQ(silent(1), 60);
  EXPECT_EQ(silent(1), 40);
}

TEST_F(LatenciesTest, ANewLatencyWaitsForTheNextActivation) {
  PluginInstance& compressor = add("compressor", "compressor", late_by(48));
  const auto process = [&](Graph& graph) {
    std::vector<float> samples(64 * 2);
    JobInfo job;
    job.width = 64;
    job.height = 2;
    job.sample_rate = rate;
    graph.process(samples.data(), samples.data(), job);
  };
  {
    Graph graph(broker, {&compressor}, {64, 2, rate});
    process(graph);
    EXPECT_FALSE(compressor.restart_requested());
    compressor.set_parameter("look_ahead", 2);
    process(graph);
    EXPECT_TRUE(compressor.restart_requested());
    EXPECT_EQ(compressor.latency_frames(), 48U);
    EXPECT_EQ(graph.latency_frames(), 48U);
  }
  compressor.deactivate();
  compressor.activate({longest, channels, rate});
  EXPECT_FALSE(compressor.restart_requested());
  Graph graph(broker, {&compressor}, {64, 2, rate});
  EXPECT_EQ(graph.latency_frames(), 96U);
  process(graph);
  EXPECT_FALSE(compressor.restart_requested());
}

// A plug-in whose lease was lost is activated anew, perhaps with another latency.
TEST_F(LatenciesTest, ALossMayBringTheNewLatency) {
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  PluginInstance& late = add("late", "compressor", late_by(48));
  probe("both", "difference");
  edge("in", "late");
  edge("late", "both.a");
  edge("in", "both.b");
  edge("both", "out");
  Graph graph(broker, description, {longest, channels, rate});
  const Signal in = signal_of(test_audio(2, 3000, 8));
  const Signal silence(2, std::vector<float>(3000));
  EXPECT_TRUE(same_bytes(run(graph, {in}, 3000, {100})[0], silence));
  late.set_parameter("look_ahead", 10);
  broker.force_loss(late.lease().tenant, late.lease().device, "a test");
  EXPECT_TRUE(same_bytes(run(graph, {in}, 3000, {100})[0], silence));
  EXPECT_EQ(graph.latency_frames(), 480U);
}

TEST_F(LatenciesTest, BypassWithLatencyIsRefused) {
  PluginInstance& instance = probe("late", "late_bypass");
  Graph graph(broker, {&instance}, {64, 2, rate});
  float sample[2] = {};
  JobInfo job;
  job.height = 2;
  job.sample_rate = rate;
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { graph.process(sample, sample, job); }),
              HasSubstr("late_bypass answered CTXB_BYPASS, and it reports a latency of 10 frames"));
  EXPECT_EQ(instance.metrics().strikes, 1U);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("CTXB_BYPASS")));
}

TEST_F(LatenciesTest, AnAbsurdLatencyIsRefused) {
  PluginInstance& instance = probe("late", "absurd_latency");
  EXPECT_THAT(
      error_text(ErrorKind::plugin_failed,
                 [&] {
                   Graph(broker, {&instance}, {64, 2, rate});
                 }),
      HasSubstr("absurd_latency reports a latency of 1099511627776 frames; it may be at most "
                "268435456"));
  EXPECT_EQ(instance.metrics().strikes, 1U);
}

}  // namespace
}  // namespace ctxbroker::test
