// Chains that go well.
#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

TEST_F(BrokerTest, AStageComputes) {
  PluginInstance instance = create("affine");
  instance.set_parameter("factor", 2);
  instance.set_parameter("offset", -1);
  instance.activate(test_sizes);
  const auto output = run({&instance});
  for (std::size_t i = 0; i < output.size(); ++i) {
    ASSERT_EQ(output[i], 2.0F * static_cast<float>(i) - 1.0F) << i;
  }
}

TEST_F(BrokerTest, AnySizeUpToTheLargest) {
  PluginInstance instance = active("affine");
  const std::pair<std::uint32_t, std::uint32_t> sizes[] = {
      {1, 1}, {1, 64}, {64, 1}, {63, 7}, {64, 64}};
  for (const auto& [width, height] : sizes) {
    const auto output = run({&instance}, width, height);
    EXPECT_EQ(output.back(), static_cast<float>(output.size() - 1)) << width << " x " << height;
  }
}

// Kinds of lease of three stages; the second is another tenant's.
using Mix = std::array<LeaseKind, 3>;
class ChainMixTest : public BrokerTest, public ::testing::WithParamInterface<Mix> {};

TEST_P(ChainMixTest, GivesTheSameBytes) {
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  PluginInstance first = create("affine", GetParam()[0]);
  PluginInstance second = broker.create(twin, "bias", {0, GetParam()[1], 0});
  PluginInstance third = create("scratch", GetParam()[2]);
  first.set_parameter("factor", 1.0 / 3);
  second.set_parameter("factor", -0.7);
  for (PluginInstance* stage : {&first, &second, &third}) stage->activate(test_sizes);
  Chain chain(broker, {&first, &second, &third}, test_sizes);
  std::vector<float> samples(64 * 64 * 4);
  for (int job = 0; job < 5; ++job) {
    std::iota(samples.begin(), samples.end(), static_cast<float>(job));
    std::vector<float> expected(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float once = samples[i] * (1.0F / 3) + 0.0F;
      expected[i] = once * -0.7F + 0.0F + 100.0F;
    }
    expected[0] = 42.0F;
    JobInfo info;
    info.width = info.height = 64;
    chain.process(samples.data(), samples.data(), info);  // in place on the host's side
    ASSERT_EQ(samples, expected) << "job " << job;
  }
  EXPECT_EQ(first.metrics().jobs, 5u);
  EXPECT_EQ(first.metrics().strikes + second.metrics().strikes + third.metrics().strikes, 0u);
}

constexpr auto shared = LeaseKind::shared;
constexpr auto alone = LeaseKind::private_own;
INSTANTIATE_TEST_SUITE_P(All, ChainMixTest,
                         ::testing::Values(Mix{shared, shared, shared}, Mix{alone, shared, shared},
                                           Mix{shared, alone, shared}, Mix{shared, shared, alone},
                                           Mix{alone, alone, shared}, Mix{alone, shared, alone},
                                           Mix{shared, alone, alone}, Mix{alone, alone, alone}));

// Memory of one context can be read from another on today's drivers, so equal bytes do not show it.
TEST_F(BrokerTest, LentBuffersBelongToTheStagesOwnContext) {
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own}) {
    PluginInstance first = active("owns_buffers", LeaseKind::private_own);
    PluginInstance second = broker.create(twin, "owns_buffers", {0, kind, 0});
    second.activate(test_sizes);
    EXPECT_EQ(run({&first, &second, &second, &first})[3], 3.0F);
  }
}

TEST_F(BrokerTest, BypassPassesTheInputOnWhereverItStands) {
  PluginInstance affine = create("affine"), bypass = active("bypass");
  PluginInstance apart = active("bypass", LeaseKind::private_own);
  affine.set_parameter("factor", 2);
  affine.activate(test_sizes);
  EXPECT_EQ(run({&bypass})[3], 3.0F);
  EXPECT_EQ(run({&bypass, &affine, &bypass})[3], 6.0F);
  EXPECT_EQ(run({&affine, &apart, &affine, &apart, &bypass})[3], 12.0F);
}

TEST_F(BrokerTest, AgainIsTriedOnceMore) {
  PluginInstance instance = active("again_once");
  EXPECT_EQ(run({&instance})[3], 3.0F);
  EXPECT_EQ(run({&instance})[3], 3.0F);
  EXPECT_EQ(instance.metrics().jobs, 2u);
}

TEST_F(BrokerTest, OneInstanceMayStandInAChainTwice) {
  PluginInstance instance = create("affine");
  instance.set_parameter("factor", 3);
  instance.activate(test_sizes);
  EXPECT_EQ(run({&instance, &instance})[1], 9.0F);
}

TEST_F(BrokerTest, ChainsRunOnSeveralThreadsAtOnce) {
  constexpr int threads = 4;
  std::vector<PluginInstance> instances;
  for (int i = 0; i < threads; ++i) {
    instances.push_back(create(i % 2 == 0 ? "affine" : "one_at_a_time",
                               i < 2 ? LeaseKind::shared : LeaseKind::private_own));
    instances.back().set_parameter("factor", i + 1);
    instances.back().activate(test_sizes);
  }
  std::vector<std::unique_ptr<Chain>> chains;
  for (auto& instance : instances) {
    chains.push_back(
        std::make_unique<Chain>(broker, std::vector<PluginInstance*>{&instance}, test_sizes));
  }
  std::vector<int> wrong(threads, 0);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      std::vector<float> input(32 * 32 * 4, 1.0F), output(input.size());
      JobInfo job;
      job.width = job.height = 32;
      for (int round = 0; round < 50; ++round) {
        chains[static_cast<std::size_t>(i)]->process(input.data(), output.data(), job);
        for (const float value : output)
          wrong[static_cast<std::size_t>(i)] += value != static_cast<float>(i + 1);
      }
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace ctxbroker
