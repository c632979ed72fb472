// SPDX-License-Identifier: Apache-2.0
// The samples on the runtime API compute what their references do, in every lease. They need a GPU;
// without one each test says so and is skipped.
#include <algorithm>
#include <cstring>
#include <iostream>
#include <optional>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using reference::Grade;
using reference::Image;
using Lengths = std::vector<std::size_t>;

constexpr double rate = 8000;
constexpr LeaseKind kinds[] = {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green};

struct ImageCase {
  const char* name;
  Stage stage;
  Image (*expected)(const Image& in);
};

const ImageCase image_cases[] = {
    {"grading_default",
     {"colour_grading"},
     [](const Image& in) { return reference::colour_grading(in, {}); }},
    {"grading",
     {"colour_grading",
      {{"lift", 0.125},
       {"gamma", 0.8},
       {"gain", {1.5, 0.75, 2, 1}},
       {"saturation", 1.25},
       {"hue", 40}}},
     [](const Image& in) {
       return reference::colour_grading(in, {0.125, 0.8, {1.5, 0.75, 2}, 1.25, 40});
     }},
    {"grading_gamma",
     {"colour_grading", {{"gamma", 2.2}, {"lift", 0.25}}},
     [](const Image& in) {
       return reference::colour_grading(in, {0.25, 2.2});
     }},
    {"equalisation_default",
     {"histogram_equalisation"},
     [](const Image& in) { return reference::histogram_equalisation(in, 0.5, 1024, 3); }},
    {"equalisation",
     {"histogram_equalisation", {{"amount", 1}, {"levels", 200}, {"limit", 6}}},
     [](const Image& in) { return reference::histogram_equalisation(in, 1, 200, 6); }},
    {"equalisation_of_many_levels",
     {"histogram_equalisation", {{"amount", 0.75}, {"levels", 65536}, {"limit", 16}}},
     [](const Image& in) { return reference::histogram_equalisation(in, 0.75, 65536, 16); }},
    {"equalisation_of_two_levels",
     {"histogram_equalisation", {{"amount", 1}, {"levels", 2}, {"limit", 0.5}}},
     [](const Image& in) { return reference::histogram_equalisation(in, 1, 2, 0.5); }},
};

struct AudioCase {
  const char* name;
  Stage stage;
  Audio (*expected)(const Audio& in);
};

const AudioCase audio_cases[] = {
    {"reverb",
     {"convolution_reverb", {{"time", 0.25}, {"pre_delay", 3}, {"seed", 7}, {"mix", 0.4}}},
     [](const Audio& in) {
       return reference::reverb(in, {0.25, 0.003, 7}, rate, 0.4);
     }},
    {"reverb_within_one_partition",
     {"convolution_reverb", {{"time", 0.01}, {"pre_delay", 0}, {"mix", 1}}},
     [](const Audio& in) {
       return reference::reverb(in, {0.01, 0, 1}, rate, 1);
     }},
    {"reverb_longer_than_the_signal",
     {"convolution_reverb", {{"time", 3}, {"pre_delay", 250}, {"mix", 0.5}}},
     [](const Audio& in) {
       return reference::reverb(in, {3, 0.25, 1}, rate, 0.5);
     }},
};

class RuntimeSamples : public testing::Test {
 protected:
  void SetUp() override {
    runner.emplace();
    if (runner->broker().driver().kind != DriverChoice::nvidia) {
      GTEST_SKIP() << "needs a GPU";
    }
    for (const char* plugin : {"convolution_reverb", "colour_grading", "histogram_equalisation"}) {
      if (!exists(plugin_file(plugin))) {
        GTEST_SKIP() << plugin << " is not built: the CUDA Toolkit lacks a library";
      }
    }
  }

  void check_image(const ImageCase& one, std::uint32_t width, std::uint32_t height) {
    SCOPED_TRACE(std::string(one.name) + ", " + std::to_string(width) + " x " +
                 std::to_string(height));
    const Image in = test_image(width, height, width + height);
    expect_close(runner->start({one.stage}, {width, height}).image(in), one.expected(in).values);
  }

  static void tell(const char* name, LeaseKind kind, const Metrics& metrics) {
    std::cout << name << ", " << to_string(kind) << ": " << metrics.graph_jobs << " of "
              << metrics.jobs << " jobs were graphs\n";
  }

  static ActivationSizes sizes(const Audio& in, const Lengths& lengths) {
    const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
    return {static_cast<std::uint32_t>(longest), static_cast<std::uint32_t>(in.size()), rate};
  }

  void check_audio(const AudioCase& one, std::size_t channels, std::size_t frames,
                   const Lengths& lengths) {
    SCOPED_TRACE(std::string(one.name) + ", " + std::to_string(channels) +
                 " channels, first block of " + std::to_string(lengths[0]));
    const Audio in = test_audio(channels, frames, static_cast<unsigned int>(frames));
    expect_close(runner->start({one.stage}, sizes(in, lengths)).audio(in, lengths),
                 one.expected(in));
  }

  std::optional<SampleRunner> runner;
};

TEST_F(RuntimeSamples, ImagesOfAnySizeMatchTheReference) {
  for (const ImageCase& one : image_cases) {
    check_image(one, 1, 1);
    check_image(one, 37, 1);
    check_image(one, 1, 37);
    check_image(one, 33, 65);
    check_image(one, 640, 479);
    check_image(one, 1, 70000);
    check_image(one, 70000, 1);
  }
}

TEST_F(RuntimeSamples, SmallerImagesAndChangedParametersMatchTheReference) {
  for (const ImageCase& one : image_cases) {
    SCOPED_TRACE(one.name);
    SampleRunner::Session session = runner->start({one.stage}, {90, 80});
    for (const auto& [width, height] :
         {std::pair<std::uint32_t, std::uint32_t>{90, 80}, {1, 80}, {33, 2}, {90, 80}}) {
      const Image in = test_image(width, height, width);
      expect_close(session.image(in), one.expected(in).values);
    }
  }
  const Image in = test_image(61, 47, 1);
  SampleRunner::Session session = runner->start({{"colour_grading"}}, {61, 47});
  for (const double saturation : {0.0, 2.0, 1.0}) {
    session.instance(0).set_parameter("saturation", saturation);
    Grade grade;
    grade.saturation = saturation;
    expect_close(session.image(in), reference::colour_grading(in, grade).values);
  }
}

TEST_F(RuntimeSamples, BlocksOfAnyLengthMatchTheReference) {
  for (const AudioCase& one : audio_cases) {
    check_audio(one, 2, 700, {1});
    check_audio(one, 1, 3000, {7});
    check_audio(one, 2, 5000, {256});
    check_audio(one, 1, 3000, {1000});
    check_audio(one, 2, 3000, {3000});
    check_audio(one, 2, 5000, {256, 1, 1000, 7, 64, 999, 2});
    check_audio(one, 6, 3000, {300});
  }
}

TEST_F(RuntimeSamples, ADiscontinuityAndANewActivationForgetTheHistory) {
  const AudioCase& one = audio_cases[0];
  const Audio in = test_audio(2, 2000, 9);
  SampleRunner::Session session = runner->start({one.stage}, sizes(in, {500}));
  session.block(in, 0, 500);
  session.block(in, 500, 700);
  // audio() begins with a discontinuity, so this is as if nothing had been before.
  expect_close(session.audio(in, {500, 100}), one.expected(in));

  PluginInstance instance = runner->create(one.stage);
  for (int life = 0; life < 3; ++life) {
    instance.activate({2000, 1, rate});
    std::vector<float> samples(in[0].begin(), in[0].end());
    {
      Graph graph(runner->broker(), {&instance}, {2000, 1, rate});
      JobInfo job;
      job.width = 2000;
      job.sample_rate = rate;
      graph.process(samples.data(), samples.data(), job);
    }
    expect_close({samples}, one.expected({in[0]}));
    EXPECT_EQ(instance.tail_frames(), 2000U + 24 - 1);
    EXPECT_EQ(instance.latency_frames(), 0U);
    instance.deactivate();
  }
}

TEST_F(RuntimeSamples, EveryLeaseGivesTheSameBytes) {
  const Image picture = test_image(203, 101, 5);
  const Audio sound = test_audio(2, 3000, 3);
  std::vector<std::vector<float>> first;
  for (const LeaseKind kind : kinds) {
    SCOPED_TRACE(to_string(kind));
    runner.emplace();
    std::vector<std::vector<float>> all;
    for (const ImageCase& one : image_cases) {
      SampleRunner::Session session = runner->start({one.stage}, {203, 101}, kind);
      ASSERT_EQ(session.instance(0).lease().granted.kind, kind);
      all.push_back(session.image(picture));
      expect_close(all.back(), one.expected(picture).values);
    }
    for (const AudioCase& one : audio_cases) {
      SampleRunner::Session session = runner->start({one.stage}, sizes(sound, {256}), kind);
      ASSERT_EQ(session.instance(0).lease().granted.kind, kind);
      const std::vector<std::vector<float>> channels = session.audio(sound, {256});
      expect_close(channels, one.expected(sound));
      all.insert(all.end(), channels.begin(), channels.end());
    }
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(std::memcmp(all[i].data(), first[i].data(), all[i].size() * sizeof(float)), 0) << i;
    }
  }
}

// cuBLAS, cuFFT and CUB enqueue what can be captured, or the broker goes on without graphs.
TEST_F(RuntimeSamples, GraphsChangeNoByte) {
  const Image picture = test_image(203, 101, 5);
  const Audio sound = test_audio(2, 3000, 3);
  for (const LeaseKind kind : kinds) {
    std::vector<std::vector<float>> results[2];
    for (const bool graphs : {false, true}) {
      runner.emplace(graphs);
      for (const ImageCase& one : image_cases) {
        SampleRunner::Session session = runner->start({one.stage}, {203, 101}, kind);
        for (int job = 0; job < 3; ++job) results[graphs].push_back(session.image(picture));
        if (graphs) tell(one.name, kind, session.instance(0).metrics());
      }
      for (const AudioCase& one : audio_cases) {
        SampleRunner::Session session = runner->start({one.stage}, sizes(sound, {256}), kind);
        for (std::vector<float>& channel : session.audio(sound, {256})) {
          results[graphs].push_back(std::move(channel));
        }
        if (graphs) tell(one.name, kind, session.instance(0).metrics());
      }
    }
    EXPECT_EQ(results[0], results[1]) << to_string(kind);
  }
}

TEST_F(RuntimeSamples, TheRuntimeIsInTheTenantsOwnLease) {
  for (const LeaseKind kind : kinds) {
    SCOPED_TRACE(to_string(kind));
    runner.emplace();
    ASSERT_TRUE(runner->broker().gate().in_force) << runner->broker().gate().reason;
    const Audio sound = test_audio(2, 500, 3);
    SampleRunner::Session audio = runner->start({audio_cases[0].stage}, sizes(sound, {500}), kind);
    audio.audio(sound, {500});
    const TenantId tenant = audio.instance(0).lease().tenant;
    for (const TenantMetrics& one : runner->broker().metrics().tenants) {
      if (one.id.value != tenant.value) continue;
      EXPECT_EQ(one.strikes, 0U);
      // The spectra alone: of 4 partitions of the impulse response and as many of the sound, 513
      // complex values for each of 2 channels.
      EXPECT_GE(one.held_bytes, 2U * 4 * 2 * 513 * 8);
      EXPECT_FALSE(one.guarded_calls.empty());
    }
  }
}

// On the software device they are listed, and refused with a word.
TEST(RuntimeSample, IsRefusedWithoutAGpu) {
  Broker broker = Broker::open();
  if (broker.driver().kind == DriverChoice::nvidia) GTEST_SKIP() << "this machine has a GPU";
  int seen = 0;
  for (const char* name : {"convolution_reverb", "colour_grading", "histogram_equalisation"}) {
    if (!exists(plugin_file(name))) continue;
    ++seen;
    const PluginLibrary library = broker.load(plugin_file(name));
    EXPECT_TRUE(library.plugins()[0].needs_nvidia_driver);
    EXPECT_EQ(library.plugins()[0].cuda_use, CudaUse::runtime);
    try {
      static_cast<void>(broker.create(library, name));
      ADD_FAILURE() << name << " was created";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::needs_gpu);
      EXPECT_NE(std::string(error.what()).find("cannot be used here: it needs a GPU"),
                std::string::npos);
    }
    // Loading it has asked the driver for nothing.
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.id.value != library.tenant().value) continue;
      EXPECT_TRUE(one.guarded_calls.empty());
    }
  }
  if (seen == 0) GTEST_SKIP() << "none of them is built: the CUDA Toolkit lacks libraries";
}

}  // namespace
}  // namespace ctxbroker::test
