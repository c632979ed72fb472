// All eight samples in one process: a photograph's chain and a recording's chain beside each other.
#include <cstring>
#include <set>

#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using reference::Image;

const std::vector<Stage> image_chain{
    {"exposure", {{"stops", 0.7}, {"gamma", 1.4}}},
    {"blur", {{"radius", 4}}},
    {"unsharp", {{"radius", 2}, {"amount", 0.8}}},
    {"colour_matrix", {{"m01", 0.25}, {"m22", 0.5}, {"offset_red", 0.1}}}};
const std::vector<Stage> audio_chain{{"gain", {{"gain_db", 3}}},
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

TEST_P(Together, AllEightLoadedAtOnceTakeTurns) {
  const Image picture = test_image(123, 77, 1);
  const Image expected_picture = expected_image(picture);
  const Audio sound = test_audio(2, 1024, 2);
  const Audio expected_sound = expected_audio(sound);
  SampleRunner runner;
  SampleRunner::Session image = runner.start(image_chain, {123, 77}, GetParam());
  SampleRunner::Session audio = runner.start(audio_chain, {256, 2, 48000}, GetParam());
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

TEST(TogetherBytes, DoNotDependOnTheLease) {
  const Image picture = test_image(123, 77, 1);
  SampleRunner runner;
  const std::vector<float> shared =
      runner.start(image_chain, {123, 77}, LeaseKind::shared).image(picture);
  const std::vector<float> own =
      runner.start(image_chain, {123, 77}, LeaseKind::private_own).image(picture);
  ASSERT_EQ(shared.size(), own.size());
  EXPECT_EQ(std::memcmp(shared.data(), own.data(), shared.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace ctxbroker::test
