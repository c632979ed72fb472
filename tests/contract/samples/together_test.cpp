// SPDX-License-Identifier: Apache-2.0
// All eight samples in one process: a photograph's graph and a recording's graph beside each other.
#include <cstring>
#include <set>

#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using reference::Image;

const std::vector<Stage> image_row{
    {"exposure", {{"stops", 0.7}, {"gamma", 1.4}}},
    {"blur", {{"radius", 4}}},
    {"unsharp", {{"radius", 2}, {"amount", 0.8}}},
    {"colour_matrix", {{"m01", 0.25}, {"m22", 0.5}, {"offset_red", 0.1}}}};
const std::vector<Stage> audio_row{{"gain", {{"gain_db", 3}}},
                                   {"equaliser", {{"low_gain", 4}, {"high_gain", -6}}},
                                   {"fir", {{"cutoff", 8000}, {"taps", 63}}},
                                   {"delay", {{"time_ms", 2}, {"feedback", 0.5}, {"mix", 0.4}}}};

Image expected_image(const Image& in) {
  using namespace reference;
  return colour_matrix(unsharp(blur(exposure(in, 0.7, 1.4), 4), 2, 0.8, 0),
                       {1, 0.25, 0, 0, 1, 0, 0, 0, 0.5}, {0.1, 0, 0});
}

Audio expected_audio(const Audio& in) {
  using namespace reference;
  const Audio equalised =
      equaliser(gain(in, 3, false), {{{120, 4, 0.7071}, {1000, 0, 1}, {6000, -6, 0.7071}}}, 48000);
  return delay(fir(equalised, low_pass_taps(8000, 48000, 63)), 96, 0.5, 0.4);
}

class Together : public testing::TestWithParam<LeaseKind> {};

TEST_P(Together, EightSamplesLoadedAtOnceTakeTurns) {
  const Image picture = test_image(123, 77, 1);
  const Image expected_picture = expected_image(picture);
  const Audio sound = test_audio(2, 1024, 2);
  const Audio expected_sound = expected_audio(sound);
  SampleRunner runner;
  SampleRunner::Session image = runner.start(image_row, {123, 77}, GetParam());
  SampleRunner::Session audio = runner.start(audio_row, {256, 2, 48000}, GetParam());
  std::set<std::uint32_t> tenants;
  for (std::size_t i = 0; i < 4; ++i) {
    tenants.insert(image.instance(i).lease().tenant.value);
    tenants.insert(audio.instance(i).lease().tenant.value);
    EXPECT_EQ(image.instance(i).lease().granted.kind, GetParam());
    EXPECT_EQ(audio.instance(i).lease().granted.kind, GetParam());
  }
  EXPECT_EQ(tenants.size(), 8U);
  for (std::size_t first = 0; first < 1024; first += 256) {
    const std::vector<std::vector<float>> block = audio.block(sound, first, first + 256);
    for (std::size_t c = 0; c < 2; ++c) {
      const auto begin = expected_sound[c].begin() + static_cast<std::ptrdiff_t>(first);
      expect_close(block[c], {begin, begin + 256});
    }
    expect_close(image.image(picture), expected_picture.values);
  }
}

INSTANTIATE_TEST_SUITE_P(Leases, Together,
                         testing::Values(LeaseKind::shared, LeaseKind::private_own),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST(TogetherBytes, BytesOfAllSamplesTogetherDoNotDependOnTheLease) {
  const Image picture = test_image(123, 77, 1);
  SampleRunner runner;
  const std::vector<float> shared =
      runner.start(image_row, {123, 77}, LeaseKind::shared).image(picture);
  const std::vector<float> own =
      runner.start(image_row, {123, 77}, LeaseKind::private_own).image(picture);
  ASSERT_EQ(shared.size(), own.size());
  EXPECT_EQ(std::memcmp(shared.data(), own.data(), shared.size() * sizeof(float)), 0);
}

// The same jobs, with parameters that change from job to job, enqueued and as graphs.
TEST_P(Together, GraphsChangeNoByte) {
  const Image picture = test_image(123, 77, 1);
  const Audio sound = test_audio(2, 1024, 2);
  std::vector<std::vector<float>> results[2];
  for (const bool graphs : {false, true}) {
    SampleRunner runner(graphs);
    SampleRunner::Session image = runner.start(image_row, {123, 77}, GetParam());
    SampleRunner::Session audio = runner.start(audio_row, {256, 2, 48000}, GetParam());
    std::size_t first = 0;
    for (const double step : {0.25, 0.5, 0.5, 1.0}) {
      image.instance(0).set_parameter("stops", step);
      image.instance(3).set_parameter("m01", step);
      audio.instance(0).set_parameter("gain_db", -step);
      audio.instance(3).set_parameter("mix", step);
      results[graphs].push_back(image.image(picture));
      for (std::vector<float>& channel : audio.block(sound, first, first + 256 - first / 8)) {
        results[graphs].push_back(std::move(channel));
      }
      first += 256 - first / 8;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(image.instance(i).metrics().graph_jobs, graphs ? 4u : 0u) << "image stage " << i;
      EXPECT_EQ(audio.instance(i).metrics().graph_jobs, graphs ? 4u : 0u) << "audio stage " << i;
    }
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[1][0], results[1][3]) << "the parameters did change";
}

}  // namespace
}  // namespace ctxbroker::test
