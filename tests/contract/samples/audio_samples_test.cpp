// SPDX-License-Identifier: Apache-2.0
// The audio samples compute what their references do, whatever the blocks and channels.
#include <cmath>
#include <cstring>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using Lengths = std::vector<std::size_t>;

constexpr double rate = 48000;

struct Case {
  const char* name;
  Stage stage;
  Audio (*expected)(const Audio& in);
  double sample_rate = rate;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const Case& one, std::ostream* stream) {
  *stream << one.name;
}

const Case cases[] = {
    {"gain",
     {"gain", {{"gain_db", -7.5}}},
     [](const Audio& in) { return reference::gain(in, -7.5, false); }},
    {"mute",
     {"gain", {{"gain_db", 12}, {"mute", 1}}},
     [](const Audio& in) { return reference::gain(in, 12, true); }},
    {"equaliser",
     {"equaliser",
      {{"low_freq", 80},
       {"low_gain", 9},
       {"low_q", 0.7},
       {"mid_freq", 900},
       {"mid_gain", -14},
       {"mid_q", 3},
       {"high_freq", 9000},
       {"high_gain", 6},
       {"high_q", 1.1}}},
     [](const Audio& in) {
       return reference::equaliser(in, {{{80, 9, 0.7}, {900, -14, 3}, {9000, 6, 1.1}}}, rate);
     }},
    {"equaliser_extremes",
     {"equaliser",
      {{"low_freq", 10},
       {"low_gain", 36},
       {"low_q", 0.5},
       {"mid_freq", 20},
       {"mid_gain", 36},
       {"mid_q", 20},
       {"high_freq", 40000},
       {"high_gain", -36},
       {"high_q", 0.1}}},
     [](const Audio& in) {
       return reference::equaliser(in, {{{10, 36, 0.5}, {20, 36, 20}, {40000, -36, 0.1}}}, rate);
     }},
    {"fir_low_pass",
     {"fir", {{"kind", 0}, {"cutoff", 3000}, {"taps", 128}}},
     [](const Audio& in) { return reference::fir(in, reference::low_pass_taps(3000, rate, 128)); }},
    {"fir_high_pass",
     {"fir", {{"kind", 1}, {"cutoff", 500}, {"taps", 300}}},
     [](const Audio& in) { return reference::fir(in, reference::high_pass_taps(500, rate, 300)); }},
    {"fir_one_tap", {"fir", {{"taps", 1}}}, [](const Audio& in) { return in; }},
    {"fir_longest",
     {"fir", {{"cutoff", 200}, {"taps", 1024}}},
     [](const Audio& in) { return reference::fir(in, reference::low_pass_taps(200, rate, 1024)); }},
    {"fir_beyond_nyquist",
     {"fir", {{"cutoff", 40000}, {"taps", 33}}},
     [](const Audio& in) { return reference::fir(in, reference::low_pass_taps(40000, rate, 33)); }},
    {"delay",
     {"delay", {{"time_ms", 4.2}, {"feedback", 0.6}, {"mix", 0.5}}},
     [](const Audio& in) { return reference::delay(in, 202, 0.6, 0.5); }},
    {"delay_of_one_sample",
     {"delay", {{"time_ms", 1}, {"feedback", 0.98}, {"mix", 0.3}}},
     [](const Audio& in) { return reference::delay(in, 1, 0.98, 0.3); },
     1000},
    {"delay_of_seven_samples",
     {"delay", {{"time_ms", 7}, {"feedback", 0.9}, {"mix", 1}}},
     [](const Audio& in) { return reference::delay(in, 7, 0.9, 1); },
     1000},
    {"delay_longer_than_the_signal",
     {"delay", {{"time_ms", 5000}, {"mix", 0.25}}},
     [](const Audio& in) { return reference::delay(in, 240000, 0.4, 0.25); }},
};

class AudioSamples : public testing::TestWithParam<Case> {
 protected:
  static ActivationSizes sizes(const Audio& in, const Lengths& lengths) {
    std::size_t longest = 1;
    for (const std::size_t length : lengths) {
      longest = std::max(longest, length);
    }
    return {static_cast<std::uint32_t>(longest), static_cast<std::uint32_t>(in.size()),
            GetParam().sample_rate};
  }

  void check(std::size_t channels, std::size_t frames, const Lengths& lengths) {
    SCOPED_TRACE(std::to_string(channels) + " channels, first block of " +
                 std::to_string(lengths[0]));
    const Audio in = test_audio(channels, frames, static_cast<unsigned int>(frames));
    SampleRunner::Session session = runner.start({GetParam().stage}, sizes(in, lengths));
    expect_close(session.audio(in, lengths), GetParam().expected(in));
  }

  SampleRunner runner;
};

TEST_P(AudioSamples, BlocksOfOneFrameMatchTheReference) {
  check(2, 1300, {1});
}

TEST_P(AudioSamples, BlocksOfEqualLengthMatchTheReference) {
  check(1, 3000, {7});
  check(2, 3000, {64});
  check(2, 3000, {256});
  check(1, 3000, {1000});
  check(2, 3000, {3000});
}

TEST_P(AudioSamples, BlocksOfChangingLengthMatchTheReference) {
  check(2, 5000, {256, 1, 1000, 7, 64, 999, 2});
}

TEST_P(AudioSamples, SixChannelsMatchTheReference) {
  check(6, 3000, {256});
}

TEST_P(AudioSamples, BlocksOrOneLongBlockGiveTheSameBytes) {
  const Audio in = test_audio(2, 3000, 3);
  const auto once = runner.start({GetParam().stage}, sizes(in, {3000})).audio(in, {3000});
  const auto parts = runner.start({GetParam().stage}, sizes(in, {300})).audio(in, {64, 300, 1, 17});
  ASSERT_EQ(once.size(), parts.size());
  for (std::size_t c = 0; c < once.size(); ++c) {
    ASSERT_EQ(once[c].size(), parts[c].size());
    EXPECT_EQ(std::memcmp(once[c].data(), parts[c].data(), once[c].size() * sizeof(float)), 0);
  }
}

TEST_P(AudioSamples, SharedAndPrivateLeasesGiveTheSameBytes) {
  const Audio in = test_audio(2, 3000, 3);
  const ActivationSizes most = sizes(in, {256});
  const auto shared = runner.start({GetParam().stage}, most, LeaseKind::shared).audio(in, {256});
  const auto own = runner.start({GetParam().stage}, most, LeaseKind::private_own).audio(in, {256});
  for (std::size_t c = 0; c < shared.size(); ++c) {
    ASSERT_EQ(shared[c].size(), own[c].size());
    EXPECT_EQ(std::memcmp(shared[c].data(), own[c].data(), own[c].size() * sizeof(float)), 0);
  }
}

TEST_P(AudioSamples, ADiscontinuityForgetsTheHistory) {
  const Audio in = test_audio(2, 2000, 9);
  SampleRunner::Session session = runner.start({GetParam().stage}, sizes(in, {500}));
  session.block(in, 0, 500);
  session.block(in, 500, 700);
  // audio() begins with a discontinuity, so this is as if nothing had been before.
  expect_close(session.audio(in, {500, 100}), GetParam().expected(in));
}

TEST_P(AudioSamples, ActivatingAgainForgetsTheHistory) {
  const Audio in = test_audio(1, 800, 9);
  for (int round = 0; round < 2; ++round) {
    PluginInstance instance = runner.create(GetParam().stage);
    for (int life = 0; life < 2; ++life) {
      instance.activate(sizes(in, {800}));
      std::vector<float> samples(in[0].begin(), in[0].end());
      {
        Graph graph(runner.broker(), {&instance}, sizes(in, {800}));
        JobInfo job;
        job.width = 800;
        job.sample_rate = GetParam().sample_rate;
        graph.process(samples.data(), samples.data(), job);
      }
      expect_close({samples}, GetParam().expected(in));
      instance.deactivate();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AudioSamples, testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

// One of each plug-in is enough, and a long filter or delay for so many channels takes gigabytes.
TEST(AudioSample, MoreChannelsThanAGridMatchTheReference) {
  const Audio in = test_audio(70000, 5, 1);
  const Case few[] = {{"gain",
                       {"gain", {{"gain_db", 6}}},
                       [](const Audio& sound) { return reference::gain(sound, 6, false); }},
                      {"equaliser",
                       {"equaliser", {{"mid_gain", 12}}},
                       [](const Audio& sound) {
                         return reference::equaliser(
                             sound, {{{120, 0, 0.7071}, {1000, 12, 1}, {6000, 0, 0.7071}}}, rate);
                       }},
                      {"fir",
                       {"fir", {{"taps", 5}}},
                       [](const Audio& sound) {
                         return reference::fir(sound, reference::low_pass_taps(2000, rate, 5));
                       }},
                      {"delay",
                       {"delay", {{"time_ms", 2}}},
                       [](const Audio& sound) { return reference::delay(sound, 2, 0.4, 0.35); },
                       1000}};
  SampleRunner runner;
  for (const Case& one : few) {
    SCOPED_TRACE(one.name);
    SampleRunner::Session session = runner.start({one.stage}, {3, 70000, one.sample_rate});
    expect_close(session.audio(in, {3}), one.expected(in));
  }
}

// The blocks before the change as the old value makes them, those after it as the new one.
TEST(AudioSample, GainMayChangeBetweenBlocks) {
  const Audio in = test_audio(2, 400, 1);
  SampleRunner runner;
  SampleRunner::Session session = runner.start({{"gain"}}, {200, 2, rate});
  expect_close(session.block(in, 0, 200)[0], {in[0].begin(), in[0].begin() + 200});
  session.instance(0).set_parameter("gain_db", 6);
  const Audio louder = reference::gain(in, 6, false);
  expect_close(session.block(in, 200, 400)[1], {louder[1].begin() + 200, louder[1].end()});
}

TEST(AudioSample, FirMayChangeItsCutoffBetweenBlocks) {
  const Audio in = test_audio(1, 1000, 1);
  SampleRunner runner;
  SampleRunner::Session session = runner.start({{"fir", {{"taps", 65}}}}, {500, 1, rate});
  session.block(in, 0, 500);
  session.instance(0).set_parameter("cutoff", 9000);
  const Audio expected = reference::fir(in, reference::low_pass_taps(9000, rate, 65));
  expect_close(session.block(in, 500, 1000)[0], {expected[0].begin() + 500, expected[0].end()});
}

TEST(AudioSample, DelayAndFirTellTheirLatencyAndTail) {
  SampleRunner runner;
  SampleRunner::Session session = runner.start(
      {{"fir", {{"taps", 129}}}, {"delay", {{"time_ms", 10}, {"feedback", 0.1}}}}, {64, 1, rate});
  EXPECT_EQ(session.instance(0).latency_frames(), 64U);
  EXPECT_EQ(session.instance(0).tail_frames(), 128U);
  EXPECT_EQ(session.instance(1).latency_frames(), 0U);
  EXPECT_EQ(session.instance(1).tail_frames(), 480U * 7);  // six echoes of 20 dB after the first
}

std::vector<std::byte> fir_state(const std::vector<float>& taps) {
  const auto count = static_cast<std::uint32_t>(taps.size());
  std::vector<std::byte> state(12 + 4 * taps.size());
  std::memcpy(state.data(), "CTXBFIR1", 8);
  std::memcpy(state.data() + 8, &count, 4);
  if (!taps.empty()) {
    std::memcpy(state.data() + 12, taps.data(), 4 * taps.size());
  }
  return state;
}

TEST(AudioSample, FirTakesAnyImpulseResponseAsItsState) {
  const std::vector<float> taps{0.5F, 0, -0.25F, 0, 0, 0.125F};
  const Audio in = test_audio(2, 700, 1);
  SampleRunner runner;
  PluginInstance instance = runner.create({"fir"});
  instance.load_state(fir_state(taps));
  EXPECT_EQ(instance.save_state(), fir_state(taps));
  std::vector<PluginInstance> instances;
  instances.push_back(std::move(instance));
  SampleRunner::Session session(runner.broker(), std::move(instances), {100, 2, rate});
  expect_close(session.audio(in, {100, 3}), reference::fir(in, {taps.begin(), taps.end()}));
  EXPECT_EQ(session.instance(0).tail_frames(), 5U);
}

TEST(AudioSample, FirRefusesABadStateAndKeepsTheOld) {
  SampleRunner runner;
  PluginInstance instance = runner.create({"fir"});
  const std::vector<std::byte> good = fir_state({0.25F, 0.5F});
  instance.load_state(good);
  std::vector<std::byte> other_magic = good;
  other_magic[0] = std::byte{'X'};
  std::vector<std::byte> cut = good;
  cut.pop_back();
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  std::vector<std::byte> too_many = good;
  too_many[10] = std::byte{1};
  for (const std::vector<std::byte>& bad :
       {other_magic, cut, longer, too_many, fir_state({1, std::nanf("")}), {}}) {
    EXPECT_THROW(instance.load_state(bad), Error);
    EXPECT_EQ(instance.save_state(), good);
  }
  instance.load_state(fir_state({}));  // back to the designed filter
  EXPECT_EQ(instance.save_state(), fir_state({}));
}

}  // namespace
}  // namespace ctxbroker::test
