// SPDX-License-Identifier: Apache-2.0
// The samples on the runtime API beside a plug-in that resets the device after every job: a
// thousand jobs of each, in every lease, are right. Without the broker one reset is enough.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "bare_host.hpp"
#include "sample_runner.hpp"
#include "support/child_process.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using reference::Image;

constexpr double sample_rate = 8000;
constexpr std::size_t jobs = 1000;
constexpr std::size_t block = 64;
constexpr std::uint32_t width = 61, height = 47;

// Why a test with these plug-ins cannot run here; empty when it can.
std::string why_not(const Broker& broker, const std::vector<std::string>& plugins) {
  if (broker.driver().kind != DriverChoice::nvidia) return "needs a GPU";
  for (const std::string& plugin : plugins) {
    if (!exists(plugin_file(plugin))) {
      return plugin + " is not built: the CUDA Toolkit lacks a library";
    }
  }
  return {};
}

struct Neighbour {
  const char* name;
  const char* plugin;
  double place;
};
constexpr Neighbour neighbours[] = {{"static_in_process", "resetting_static", 0},
                                    {"static_on_its_own_thread", "resetting_static", 1},
                                    {"shared_in_process", "resetting_shared", 0},
                                    {"shared_on_its_own_thread", "resetting_shared", 1}};

// Returns how often the plug-in's code has called a reset function of the gate.
std::uint64_t resets(const Broker& broker, TenantId tenant) {
  std::uint64_t sum = 0;
  for (const TenantMetrics& one : broker.metrics().tenants) {
    if (one.id.value != tenant.value) continue;
    for (const auto& [function, calls] : one.guarded_calls) {
      if (function.find("PrimaryCtxReset") != std::string::npos) sum += calls;
    }
  }
  return sum;
}

const Audio& sound() {
  static const Audio all = test_audio(1, jobs * block, 3);
  return all;
}
const Audio& expected_sound() {
  static const Audio all = reference::reverb(sound(), {0.25, 0.003, 7}, sample_rate, 0.4);
  return all;
}

class BesideResets : public testing::TestWithParam<std::tuple<Neighbour, LeaseKind>> {};

TEST_P(BesideResets, JobsBesideResetsOfANeighbourAreRight) {
  const auto& [neighbour, kind] = GetParam();
  SampleRunner runner;
  const std::string reason = why_not(runner.broker(), {"convolution_reverb", "colour_grading",
                                                       "histogram_equalisation", neighbour.plugin});
  if (!reason.empty()) GTEST_SKIP() << reason;

  const Image picture = test_image(width, height, 5);
  const Image expected[] = {reference::colour_grading(picture, {0.125, 0.8, {1, 1, 1}, 1.25, 40}),
                            reference::histogram_equalisation(picture, 0.5, 1024, 3)};
  Image scaled = picture;
  for (std::size_t i = 0; i < scaled.values.size(); ++i) {
    if (i % 4 != 3) scaled.values[i] *= 1.5;
  }
  const ActivationSizes sizes{width, height};
  SampleRunner::Session images[] = {
      runner.start({{"colour_grading",
                     {{"lift", 0.125}, {"gamma", 0.8}, {"saturation", 1.25}, {"hue", 40}}}},
                   sizes, kind),
      runner.start({{"histogram_equalisation"}}, sizes, kind)};
  SampleRunner::Session reverb = runner.start(
      {{"convolution_reverb", {{"time", 0.25}, {"pre_delay", 3}, {"seed", 7}, {"mix", 0.4}}}},
      {block, 1, sample_rate}, kind);
  SampleRunner::Session resetting =
      runner.start({{neighbour.plugin, {{"place", neighbour.place}}}}, sizes, kind);

  std::vector<float> first[2];
  std::vector<std::vector<float>> heard(1);
  for (std::size_t job = 0; job < jobs && !HasFailure(); ++job) {
    SCOPED_TRACE("job " + std::to_string(job));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<float> pixels = images[i].image(picture);
      if (job == 0) {
        first[i] = pixels;
        expect_close(pixels, expected[i].values);
      }
      EXPECT_EQ(std::memcmp(pixels.data(), first[i].data(), pixels.size() * sizeof(float)), 0);
    }
    const auto part = reverb.block(sound(), job * block, (job + 1) * block, job == 0);
    heard[0].insert(heard[0].end(), part[0].begin(), part[0].end());
    // The one that resets sees nothing of it either: memory and module are as they were.
    expect_close(resetting.image(picture), scaled.values);
  }
  expect_close(heard, expected_sound());

  const TenantId tenant = resetting.instance(0).lease().tenant;
  const std::uint64_t asked = resets(runner.broker(), tenant);
  // With a private context current, the runtime library knows that there is nothing to reset.
  const bool asks = kind != LeaseKind::private_own;
  EXPECT_GE(asked, asks ? jobs : 0);
  RecordProperty("resets", std::to_string(asked));
}

INSTANTIATE_TEST_SUITE_P(All, BesideResets,
                         testing::Combine(testing::ValuesIn(neighbours),
                                          testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                                          LeaseKind::green)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param).name) + "_" +
                                  (std::get<1>(one.param) == LeaseKind::private_own
                                       ? "private"
                                       : to_string(std::get<1>(one.param)));
                         });

// ---- the positive control: the same plug-ins in one process without a broker

TEST(WithoutABroker, DISABLED_ResetsBesideANeighbourInOneHost) {
  const Image picture = test_image(width, height, 5);
  const std::vector<float> pixels(picture.values.begin(), picture.values.end());
  const Image expected = reference::histogram_equalisation(picture, 0.5, 1024, 3);
  BareHost host(width, height);
  const ctxb_plugin& equalisation = host.load(plugin_file("histogram_equalisation"));
  const ctxb_plugin& resetting = host.load(plugin_file("resetting_static"));
  expect_close(host.process(equalisation, pixels), expected.values);
  if (!HasFailure()) std::printf("BEFORE: right\n");
  std::fflush(stdout);
  try {
    host.process(resetting, pixels);
  } catch (const std::runtime_error& error) {
    std::printf("RESETTING: %s\n", error.what());
  }
  std::fflush(stdout);
  try {
    expect_close(host.process(equalisation, pixels), expected.values);
    std::printf(HasFailure() ? "DAMAGE: wrong pixels\n" : "AFTER: right\n");
  } catch (const std::runtime_error& error) {
    std::printf("DAMAGE: %s\n", error.what());
  }
  std::fflush(stdout);
  std::_Exit(0);  // what is left of the context may crash at the process's end
}

TEST(WithoutABroker, OneResetEndsTheNeighboursWork) {
  {
    Broker broker = Broker::open();
    const std::string reason = why_not(broker, {"histogram_equalisation", "resetting_static"});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  const ChildResult child = run_child("WithoutABroker.DISABLED_ResetsBesideANeighbourInOneHost");
  EXPECT_THAT(child.output, testing::HasSubstr("BEFORE: right"));
  EXPECT_THAT(child.output, testing::Not(testing::HasSubstr("AFTER: right")));
  EXPECT_TRUE(child.output.find("DAMAGE: ") != std::string::npos || child.exit_code == -1)
      << child.exit_code << '\n'
      << child.output;
}

}  // namespace
}  // namespace ctxbroker::test
