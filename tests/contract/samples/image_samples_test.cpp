// SPDX-License-Identifier: Apache-2.0
// The image samples compute what their references do, at any size.
#include <cstring>

#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Image;

struct Case {
  const char* name;
  Stage stage;
  Image (*expected)(const Image& in);
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const Case& one, std::ostream* stream) {
  *stream << one.name;
}

const Case cases[] = {
    {"exposure_bright",
     {"exposure", {{"stops", 1.75}, {"gamma", 2.2}}},
     [](const Image& in) { return reference::exposure(in, 1.75, 2.2); }},
    {"exposure_dark",
     {"exposure", {{"stops", -16}, {"gamma", 0.1}}},
     [](const Image& in) { return reference::exposure(in, -16, 0.1); }},
    {"exposure_default",
     {"exposure"},
     [](const Image& in) { return reference::exposure(in, 0, 1); }},
    {"colour_matrix",
     {"colour_matrix",
      {{"m00", 0.5},
       {"m01", -1.25},
       {"m02", 2},
       {"m10", 0.75},
       {"m11", 1.5},
       {"m12", -0.5},
       {"m20", 16},
       {"m21", 0},
       {"m22", -16},
       {"offset_red", 0.25},
       {"offset_green", -3},
       {"offset_blue", 16}}},
     [](const Image& in) {
       return reference::colour_matrix(in, {0.5, -1.25, 2, 0.75, 1.5, -0.5, 16, 0, -16},
                                       {0.25, -3, 16});
     }},
    {"vignette_default", {"vignette"}, [](const Image& in) { return reference::vignette(in, {}); }},
    {"vignette_coloured",
     {"vignette",
      {{"centre", {0.25, 1}},
       {"radius", 0.125},
       {"softness", 1.5},
       {"colour", {1, 0.5, 0.25, 0.75}}}},
     [](const Image& in) {
       return reference::vignette(in, {0.25, 1, 0.125, 1.5, {1, 0.5, 0.25, 0.75}});
     }},
    {"colour_matrix_default", {"colour_matrix"}, [](const Image& in) { return in; }},
    {"blur", {"blur", {{"radius", 6}}}, [](const Image& in) { return reference::blur(in, 6); }},
    {"blur_fraction",
     {"blur", {{"radius", 2.4}}},
     [](const Image& in) { return reference::blur(in, 2.4); }},
    {"blur_none",
     {"blur", {{"radius", 0}}},
     [](const Image& in) { return reference::blur(in, 0); }},
    {"blur_tiny",
     {"blur", {{"radius", 0.01}}},
     [](const Image& in) { return reference::blur(in, 0.01); }},
    {"blur_widest",
     {"blur", {{"radius", 64}}},
     [](const Image& in) { return reference::blur(in, 64); }},
    {"unsharp",
     {"unsharp", {{"radius", 4.5}, {"amount", 1.5}, {"threshold", 0.125}}},
     [](const Image& in) { return reference::unsharp(in, 4.5, 1.5, 0.125); }},
    {"unsharp_none",
     {"unsharp", {{"radius", 9}, {"amount", 0}}},
     [](const Image& in) { return reference::unsharp(in, 9, 0, 0); }},
};

class ImageSamples : public testing::TestWithParam<Case> {
 protected:
  void check(std::uint32_t width, std::uint32_t height) {
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height));
    const Image in = test_image(width, height, width + height);
    SampleRunner runner;
    SampleRunner::Session session = runner.start({GetParam().stage}, {width, height});
    expect_close(session.image(in), GetParam().expected(in).values);
  }
};

TEST_P(ImageSamples, SmallSizesMatchTheReference) {
  check(1, 1);
  check(2, 2);
  check(1, 37);
  check(37, 1);
  check(17, 13);
  check(33, 65);
  check(257, 16);
}

TEST_P(ImageSamples, PhotographMatchesTheReference) {
  check(640, 479);
}

TEST_P(ImageSamples, ImageTallerThanAGridMatchesTheReference) {
  check(1, 70000);
}

TEST_P(ImageSamples, ImageWiderThanAGridMatchesTheReference) {
  check(70000, 1);
}

TEST_P(ImageSamples, SharedAndPrivateLeasesGiveTheSameBytes) {
  const Image in = test_image(203, 101, 5);
  SampleRunner runner;
  const ActivationSizes sizes{203, 101};
  const std::vector<float> shared =
      runner.start({GetParam().stage}, sizes, LeaseKind::shared).image(in);
  const std::vector<float> own =
      runner.start({GetParam().stage}, sizes, LeaseKind::private_own).image(in);
  ASSERT_EQ(shared.size(), own.size());
  EXPECT_EQ(std::memcmp(shared.data(), own.data(), shared.size() * sizeof(float)), 0);
}

TEST_P(ImageSamples, SmallerJobsThanTheActivationMatchTheReference) {
  SampleRunner runner;
  SampleRunner::Session session = runner.start({GetParam().stage}, {90, 80});
  for (const auto& [width, height] :
       {std::pair<std::uint32_t, std::uint32_t>{90, 80}, {1, 80}, {33, 2}, {90, 80}}) {
    const Image in = test_image(width, height, width);
    expect_close(session.image(in), GetParam().expected(in).values);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImageSamples, testing::ValuesIn(cases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(ImageSample, ParametersMayChangeFromJobToJob) {
  const Image in = test_image(61, 47, 1);
  SampleRunner runner;
  SampleRunner::Session session = runner.start({{"blur"}}, {61, 47});
  for (const double radius : {3.0, 12.0, 12.0, 0.0, 3.0}) {
    session.instance(0).set_parameter("radius", radius);
    expect_close(session.image(in), reference::blur(in, radius).values);
  }
}

TEST(ImageSample, ActivatingAgainStartsAfresh) {
  const Image in = test_image(31, 17, 1);
  SampleRunner runner;
  PluginInstance instance = runner.create({"unsharp", {{"radius", 5}}});
  for (int round = 0; round < 3; ++round) {
    instance.activate({31, 17});
    std::vector<float> pixels(in.values.begin(), in.values.end());
    {
      Graph graph(runner.broker(), {&instance}, {31, 17});
      JobInfo job;
      job.width = 31;
      job.height = 17;
      graph.process(pixels.data(), pixels.data(), job);
    }
    expect_close(pixels, reference::unsharp(in, 5, 1, 0).values);
    instance.deactivate();
  }
}

}  // namespace
}  // namespace ctxbroker::test
