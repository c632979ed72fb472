// SPDX-License-Identifier: Apache-2.0
// Image samples on halves: they compute what their references do, rounded once to half.
#include <cmath>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Image;

// By arithmetic, as IEEE 754 defines halves: 11 bits, exponents from -14 to 15.
std::uint16_t half_of(double value) {
  const unsigned sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::min(std::abs(value), 65504.0);
  if (size == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = std::max(std::ilogb(size), -14);
  // Without the hidden bit for exponent -14, a number below 2^-14 is denormal.
  const double steps = std::nearbyint(std::ldexp(size, 10 - exponent));
  return static_cast<std::uint16_t>(
      sign | ((static_cast<unsigned>(exponent + 14) << 10) + static_cast<unsigned>(steps)));
}

double value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 0x3ff;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

std::vector<std::uint16_t> halves_of(const std::vector<double>& values) {
  std::vector<std::uint16_t> halves;
  for (const double value : values) halves.push_back(half_of(value));
  return halves;
}

Image rounded(Image image) {
  for (double& value : image.values) value = value_of(half_of(value));
  return image;
}

// One unit in the last place of a half, and what floats differ before that.
void expect_halves(const std::vector<std::uint16_t>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double wanted = value_of(half_of(expected[i]));
    const double unit = std::ldexp(1, std::max(std::ilogb(wanted == 0 ? 1e-9 : wanted), -14) - 10);
    ASSERT_NEAR(value_of(actual[i]), wanted, unit + 1e-5) << "value " << i;
  }
}

struct HalfCase {
  const char* name;
  Stage stage;
  Image (*expected)(const Image& in);
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const HalfCase& one, std::ostream* stream) {
  *stream << one.name;
}

const HalfCase half_cases[] = {
    {"exposure",
     {"exposure", {{"stops", 1.75}, {"gamma", 2.2}}},
     [](const Image& in) { return reference::exposure(in, 1.75, 2.2); }},
    {"exposure_beyond_the_range",
     {"exposure", {{"stops", 16}}},
     [](const Image& in) { return reference::exposure(in, 16, 1); }},
    {"colour_matrix",
     {"colour_matrix", {{"m00", 0.5}, {"m01", -1.25}, {"offset_green", 3}}},
     [](const Image& in) {
       return reference::colour_matrix(in, {0.5, -1.25, 0, 0, 1, 0, 0, 0, 1}, {0, 3, 0});
     }},
    {"blur", {"blur", {{"radius", 6}}}, [](const Image& in) { return reference::blur(in, 6); }},
    {"unsharp", {"unsharp", {{"radius", 4.5}, {"amount", 0.5}}}, [](const Image& in) {
       return reference::unsharp(in, 4.5, 0.5, 0);
     }}};

class HalfSamples : public testing::TestWithParam<HalfCase> {};

TEST_P(HalfSamples, HalfSamplesMatchTheReference) {
  for (const auto& [width, height] :
       {std::pair<std::uint32_t, std::uint32_t>{1, 1}, {61, 47}, {3, 130}}) {
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height));
    const Image in = rounded(test_image(width, height, width));
    SampleRunner runner;
    PluginInstance instance = runner.create(GetParam().stage);
    const ActivationSizes sizes{width, height};
    instance.activate(sizes);
    Graph graph(runner.broker(), {&instance}, sizes, {}, SampleType::float16);
    const std::vector<std::uint16_t> source = halves_of(in.values);
    std::vector<std::uint16_t> target(source.size(), 0x7e00);  // not a number
    JobInfo job;
    job.width = width;
    job.height = height;
    graph.process({{source.data()}, {target.data()}}, job);
    expect_halves(target, GetParam().expected(in).values);
  }
}

// Floats would be read as halves, twice as many as there are.
TEST(FloatsForHalves, ProcessWithFloatsIsRefused) {
  SampleRunner runner;
  PluginInstance instance = runner.create({"exposure", {}});
  const ActivationSizes sizes{2, 2};
  instance.activate(sizes);
  std::vector<float> pixels(16);
  JobInfo job;
  job.width = job.height = 2;
  const auto run_with = [&](SampleType samples) {
    Graph graph(runner.broker(), {&instance}, sizes, {}, samples);
    return graph.process(pixels.data(), pixels.data(), job);
  };
  EXPECT_EQ(run_with(SampleType::float32), JobOutcome::done) << "the control";
  try {
    static_cast<void>(run_with(SampleType::float16));
    ADD_FAILURE() << "halves were taken for floats";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, HalfSamples, testing::ValuesIn(half_cases),
                         [](const auto& one) { return std::string(one.param.name); });

// Every number of channels, of both types of samples.
TEST(HalfSample, ExposureTakesOneToFourChannels) {
  const Image in = rounded(test_image(45, 33, 3));
  const Image expected = reference::exposure(in, 1, 1.5);
  constexpr std::size_t places[4][4] = {{0}, {0, 3}, {0, 1, 2}, {0, 1, 2, 3}};
  for (std::uint32_t channels = 1; channels <= 4; ++channels) {
    SCOPED_TRACE(channels);
    std::vector<double> some, wanted;
    for (std::size_t at = 0; at < in.values.size(); at += 4) {
      for (std::uint32_t c = 0; c < channels; ++c) {
        some.push_back(in.values[at + places[channels - 1][c]]);
        wanted.push_back(expected.values[at + places[channels - 1][c]]);
      }
    }
    SampleRunner runner;
    PluginInstance instance = runner.create({"exposure", {{"stops", 1}, {"gamma", 1.5}}});
    const ActivationSizes sizes{45, 33};
    instance.activate(sizes);
    JobInfo job;
    job.width = 45;
    job.height = 33;
    const auto description = [&](SampleType samples) {
      return GraphDescription{{{"in", channels, samples}},
                              {{"out", channels, samples}},
                              {{"exposure", &instance}},
                              {{"in", "exposure"}, {"exposure", "out"}}};
    };
    {
      Graph graph(runner.broker(), description(SampleType::float16), sizes);
      std::vector<std::uint16_t> halves = halves_of(some);
      graph.process({{halves.data()}, {halves.data()}}, job);
      expect_halves(halves, wanted);
    }
    Graph graph(runner.broker(), description(SampleType::float32), sizes);
    std::vector<float> floats(some.begin(), some.end());
    graph.process({{floats.data()}, {floats.data()}}, job);
    expect_close(floats, wanted);
  }
}

// A float over a half, through a mask of halves, into a half.
TEST(HalfSample, MergeMixesFormats) {
  const Image front = test_image(40, 31, 1), back = rounded(test_image(40, 31, 2));
  std::vector<double> mask, expected;
  for (std::size_t at = 0; at < back.values.size(); at += 4) {
    const double weight = static_cast<double>(at / 4 % 5) / 4;
    mask.push_back(weight);
    for (std::size_t c = 0; c < 4; ++c) {
      const double b = back.values[at + c];
      expected.push_back(b + (front.values[at + c] * b - b) * weight);
    }
  }
  SampleRunner runner;
  PluginInstance merge = runner.create({"merge", {{"operation", 2}}});
  const ActivationSizes sizes{40, 31};
  merge.activate(sizes);
  const GraphDescription description{
      {{"front"}, {"back", 4, SampleType::float16}, {"mask", 1, SampleType::float16}},
      {{"out", 4, SampleType::float16}},
      {{"merge", &merge}},
      {{"front", "merge.a"}, {"back", "merge.b"}, {"mask", "merge.mask"}, {"merge", "out"}}};
  Graph graph(runner.broker(), description, sizes);
  const std::vector<float> a(front.values.begin(), front.values.end());
  const std::vector<std::uint16_t> b = halves_of(back.values), weights = halves_of(mask);
  std::vector<std::uint16_t> out(b.size());
  JobInfo job;
  job.width = 40;
  job.height = 31;
  graph.process({{a.data(), b.data(), weights.data()}, {out.data()}}, job);
  expect_halves(out, expected);
}

}  // namespace
}  // namespace ctxbroker::test
