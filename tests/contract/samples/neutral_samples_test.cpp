// SPDX-License-Identifier: Apache-2.0
// Samples at settings that change nothing give back what they got: light below 0, infinities and
// what is no number as well. The control is the same sample at another setting.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double numbers[] = {0.0,          -0.25,    1.0 / 3, 7,         1e30, 1.0 / 1e9,
                              not_a_number, infinity, -3,      -infinity, 0.5,  not_a_number};

struct Neutral {
  const char* name;
  Stage neutral;
  Stage other;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const Neutral& one, std::ostream* stream) {
  *stream << one.name;
}

// Where two floats are not the same value. All NaNs are one value.
std::size_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t count = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const bool same = std::isnan(a[i]) ? std::isnan(b[i]) : a[i] == b[i];
    if (!same) ++count;
  }
  return count;
}

reference::Image odd_picture() {
  constexpr double alphas[] = {1, 0.3, 0, 0.7};
  reference::Image in(31, 9);
  for (std::size_t i = 0; i < in.values.size(); ++i) {
    in.values[i] = i % 4 == 3 ? alphas[i / 4 % 4] : numbers[(i * 7 + i / 4) % std::size(numbers)];
  }
  return in;
}

std::vector<float> floats(const reference::Image& image) {
  return {image.values.begin(), image.values.end()};
}

class NeutralPictures : public testing::TestWithParam<Neutral> {};

TEST_P(NeutralPictures, NeutralSettingChangesNoPixel) {
  SampleRunner runner;
  const auto changed = [&](const Stage& stage, const reference::Image& in) {
    return differences(runner.start({stage}, {in.width, in.height}).image(in), floats(in));
  };
  EXPECT_EQ(changed(GetParam().neutral, odd_picture()), 0U);
  EXPECT_NE(changed(GetParam().other, test_image(64, 48, 1)), 0U);
}

TEST(NeutralTime, BlurOfOneFrameChangesNoPixel) {
  const reference::Image in = odd_picture();
  SampleRunner runner;
  const Stage alone{"time_blur", {{"before", 0}, {"after", 0}}};
  EXPECT_EQ(differences(runner.start({alone}, {in.width, in.height}).image(in), floats(in)), 0U);
}

TEST(NeutralMerge, AmountOfZeroLeavesTheBackgroundAlone) {
  const reference::Image back = odd_picture(), front = test_image(back.width, back.height, 1);
  SampleRunner runner;
  PluginInstance merge = runner.create({"merge"});
  const ActivationSizes sizes{back.width, back.height};
  merge.activate(sizes);
  GraphDescription description;
  description.inputs = {{"front"}, {"back"}};
  description.outputs = {{"out"}};
  description.nodes = {{"merge", &merge}};
  description.edges = {{"front", "merge.a"}, {"back", "merge.b"}, {"merge", "out"}};
  Graph graph(runner.broker(), description, sizes);
  JobInfo job;
  job.width = back.width;
  job.height = back.height;
  const std::vector<float> a = floats(front), b = floats(back);
  for (const double amount : {0.0, 0.5}) {
    merge.set_parameter("amount", amount);
    std::vector<float> out(b.size());
    graph.process({{a.data(), b.data()}, {out.data()}}, job);
    EXPECT_EQ(differences(out, b) == 0, amount == 0) << amount;
  }
}

const Neutral pictures[] = {
    {"exposure", {"exposure"}, {"exposure", {{"stops", 1}}}},
    {"colour_matrix", {"colour_matrix"}, {"colour_matrix", {{"m01", 0.5}}}},
    {"vignette_without_colour",
     {"vignette", {{"colour", {1, 1, 1, 0}}}},
     {"vignette", {{"colour", {1, 1, 1, 0.5}}}}},
    {"vignette_beyond_the_picture", {"vignette", {{"radius", 2}}}, {"vignette", {{"radius", 0}}}},
    {"blur", {"blur", {{"radius", 0}}}, {"blur", {{"radius", 2}}}},
    {"unsharp", {"unsharp", {{"amount", 0}}}, {"unsharp", {{"amount", 2}}}},
    {"unsharp_radius", {"unsharp", {{"radius", 0}}}, {"unsharp", {{"radius", 3}}}},
};
INSTANTIATE_TEST_SUITE_P(All, NeutralPictures, testing::ValuesIn(pictures),
                         [](const auto& one) { return std::string(one.param.name); });

class NeutralSound : public testing::TestWithParam<Neutral> {};

TEST_P(NeutralSound, NeutralSettingChangesNoSample) {
  reference::Audio in(2, reference::Channel(600));
  std::vector<float> given;
  for (reference::Channel& channel : in) {
    for (std::size_t i = 0; i < channel.size(); ++i) {
      channel[i] = numbers[(i + (&channel - in.data())) % std::size(numbers)];
      given.push_back(static_cast<float>(channel[i]));
    }
  }
  SampleRunner runner;
  const auto got = [&](const Stage& stage) {
    const auto channels = runner.start({stage}, {600, 2, 48000}).audio(in, {600});
    std::vector<float> all = channels[0];
    all.insert(all.end(), channels[1].begin(), channels[1].end());
    return all;
  };
  EXPECT_EQ(differences(got(GetParam().neutral), given), 0U);
  EXPECT_NE(differences(got(GetParam().other), given), 0U);
}

const Neutral sounds[] = {
    {"gain", {"gain"}, {"gain", {{"gain_db", 1}}}},
    {"delay", {"delay", {{"mix", 0}, {"time_ms", 1}}}, {"delay", {{"mix", 0.5}, {"time_ms", 1}}}},
    {"compressor", {"compressor", {{"ratio", 1}}}, {"compressor", {{"ratio", 4}, {"attack", 0}}}},
    {"mix", {"mix"}, {"mix", {{"level_1", 0.5}}}},
};
INSTANTIATE_TEST_SUITE_P(All, NeutralSound, testing::ValuesIn(sounds),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(NeutralSilence, MutedSoundIsSilent) {
  const reference::Audio in(1, reference::Channel(std::begin(numbers), std::end(numbers)));
  SampleRunner runner;
  const auto sizes = ActivationSizes{static_cast<std::uint32_t>(in[0].size()), 1, 48000};
  for (const Stage& silent : {Stage{"gain", {{"mute", 1}}}, Stage{"mix", {{"level_1", 0}}}}) {
    EXPECT_THAT(runner.start({silent}, sizes).audio(in, {in[0].size()})[0], testing::Each(0.0F))
        << silent.plugin;
  }
}

}  // namespace
}  // namespace ctxbroker::test
