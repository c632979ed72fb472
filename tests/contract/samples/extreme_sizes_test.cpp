// SPDX-License-Identifier: Apache-2.0
// Sizes and sample rates that no arithmetic of 32 bits can take: a sample refuses them in activate,
// in words, or it works.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t extents[] = {0, 1, 0x80000000U, 0xffffffffU};
constexpr double rates[] = {0, 1, 1e-300, 1e300, 768000};

struct Sample {
  const char* name;
  bool audio;
  bool needs_rate;
};
constexpr Sample all_samples[] = {{"exposure", false, false}, {"blur", false, false},
                                  {"unsharp", false, false},  {"colour_matrix", false, false},
                                  {"gain", true, false},      {"equaliser", true, true},
                                  {"fir", true, true},        {"delay", true, true},
                                  {"compressor", true, true}, {"vignette", false, false}};

class ExtremeSizesTest : public ::testing::TestWithParam<Sample> {
 protected:
  // Activates the plug-in. Returns the error's text, or an empty text if it succeeds.
  std::string activate(std::uint32_t width, std::uint32_t height, double rate) {
    SampleRunner runner;
    PluginInstance instance = runner.create({GetParam().name});
    ActivationSizes sizes;
    sizes.max_width = width;
    sizes.max_height = height;
    sizes.sample_rate = rate;
    try {
      instance.activate(sizes);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  // One pixel or frame of the largest value that is usual.
  float work(double rate) {
    SampleRunner runner;
    ActivationSizes sizes;
    sizes.sample_rate = rate;
    SampleRunner::Session session = runner.start({{GetParam().name}}, sizes);
    if (GetParam().audio) return session.block(reference::Audio{{1.0}}, 0, 1)[0][0];
    reference::Image image(1, 1);
    image.values.assign(4, 1);
    const std::vector<float> out = session.image(image);
    return *std::max_element(out.begin(), out.end());
  }
};

TEST_P(ExtremeSizesTest, ExtentsAreRefusedInWords) {
  for (const std::uint32_t width : extents) {
    for (const std::uint32_t height : extents) {
      SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height));
      const std::string said = activate(width, height, 48000);
      const std::uint32_t larger = std::max(width, height);
      if (width == 1 && height == 1) {
        EXPECT_EQ(said, "");
      } else if (std::min(width, height) == 0) {
        EXPECT_THAT(said, HasSubstr("must be at least 1"));
      } else if (std::uint64_t{width} * height > (std::uint64_t{1} << 36U)) {
        EXPECT_THAT(said, HasSubstr("absurd")) << "the broker refuses it";
      } else {
        EXPECT_THAT(said, HasSubstr(std::to_string(larger)));
        EXPECT_THAT(said, HasSubstr("from 1 to 1073741824"));
      }
    }
  }
}

TEST_P(ExtremeSizesTest, SampleRatesAreRefusedInWordsOrWork) {
  for (const double rate : rates) {
    SCOPED_TRACE(rate);
    const std::string said = activate(1, 1, rate);
    if (GetParam().audio && rate == 0) {
      EXPECT_THAT(said, HasSubstr("sample_rate is 0, but audio needs the rate"));
      continue;
    }
    if (GetParam().needs_rate && (rate < 1 || rate > 768000)) {
      EXPECT_THAT(said, HasSubstr("it has to be from 1 to 10,000,000 Hz"));
      continue;
    }
    ASSERT_EQ(said, "");
    const float result = work(rate);
    EXPECT_TRUE(std::isfinite(result)) << result;
    EXPECT_LE(std::abs(result), 2.0F);
  }
}

// A filter that was made for another rate would be wrong, and nobody would notice.
TEST(SampleRateTest, SampleRateOtherThanTheActivationsIsRefused) {
  SampleRunner runner;
  PluginInstance gain = runner.create({"gain"});
  ActivationSizes sizes;
  sizes.sample_rate = 48000;
  gain.activate(sizes);
  ActivationSizes other = sizes;
  other.sample_rate = 44100;
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(
      refusal([&] { Graph(runner.broker(), {&gain}, other); }),
      HasSubstr("the graph has a sample rate of 44100 Hz, but gain is active for 48000 Hz"));
  Graph graph(runner.broker(), {&gain}, sizes);
  float sample = 1;
  JobInfo job;
  for (const double rate : {0.0, 44100.0}) {
    job.sample_rate = rate;
    EXPECT_THAT(refusal([&] { graph.process(&sample, &sample, job); }),
                HasSubstr("Hz, but gain is active for 48000 Hz"));
  }
  job.sample_rate = 48000;
  graph.process(&sample, &sample, job);
}

INSTANTIATE_TEST_SUITE_P(Samples, ExtremeSizesTest, ::testing::ValuesIn(all_samples),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ctxbroker::test
