// SPDX-License-Identifier: Apache-2.0
// Graphs that go well.
#include <gmock/gmock.h>

#include <iterator>
#include <numeric>
#include <thread>
#include <tuple>

#include "broker_fixture.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

TEST_F(BrokerTest, StageComputesWithItsParameters) {
  PluginInstance instance = create("affine");
  instance.set_parameter("factor", 2);
  instance.set_parameter("offset", -1);
  instance.activate(test_sizes);
  const auto output = run({&instance});
  for (std::size_t i = 0; i < output.size(); ++i) {
    ASSERT_EQ(output[i], 2.0F * static_cast<float>(i) - 1.0F) << i;
  }
}

TEST_F(BrokerTest, JobsOfAnySizeUpToTheLargestAreComputed) {
  PluginInstance instance = active("affine");
  const std::pair<std::uint32_t, std::uint32_t> sizes[] = {
      {1, 1}, {1, 64}, {64, 1}, {63, 7}, {64, 64}};
  for (const auto& [width, height] : sizes) {
    const auto output = run({&instance}, width, height);
    EXPECT_EQ(output.back(), static_cast<float>(output.size() - 1)) << width << " x " << height;
  }
}

constexpr LeaseKind every_kind[] = {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green};
// The same plug-ins: a tenant has one lease, so that each kind needs one of its own.
constexpr const char* library_names[] = {"behaviours", "behaviours_twin", "behaviours_third"};

// The kinds of lease of three stages, each another tenant's.
using Mix = std::tuple<LeaseKind, LeaseKind, LeaseKind>;
class GraphMixTest : public BrokerTest, public ::testing::WithParamInterface<Mix> {
 protected:
  // Whatever lease the library has already, if it has one.
  PluginInstance create_in(const char* library, const char* behaviour, LeaseKind kind) {
    return broker.create(broker.load(test_plugin(library)), behaviour,
                         {Placement(0), LeaseChoice(kind), 0});
  }
  // Three stages that change the samples, one after the other.
  static void prepare(PluginInstance& first, PluginInstance& second, PluginInstance& third) {
    first.set_parameter("factor", 1.0 / 3);
    second.set_parameter("factor", -0.7);
    for (PluginInstance* stage : {&first, &second, &third}) stage->activate(test_sizes);
  }
};

TEST_P(GraphMixTest, GraphAcrossLeasesGivesTheBytesOfOneLease) {
  const auto& [one, two, three] = GetParam();
  PluginInstance first = create_in(library_names[0], "affine", one);
  PluginInstance second = create_in(library_names[1], "bias", two);
  PluginInstance third = create_in(library_names[2], "scratch", three);
  prepare(first, second, third);
  ASSERT_EQ(first.lease().granted.kind, one);
  ASSERT_EQ(second.lease().granted.kind, two);
  ASSERT_EQ(third.lease().granted.kind, three);
  Graph graph(broker, {&first, &second, &third}, test_sizes);
  // The same in one lease.
  PluginInstance same_first = create("affine", one), same_second = create("bias", one);
  PluginInstance same_third = create("scratch", one);
  prepare(same_first, same_second, same_third);
  ASSERT_EQ(same_third.lease().generation, first.lease().generation);
  Graph in_one_lease(broker, {&same_first, &same_second, &same_third}, test_sizes);
  std::vector<float> samples(64 * 64 * 4), same;
  for (int job = 0; job < 5; ++job) {
    std::iota(samples.begin(), samples.end(), static_cast<float>(job));
    same = samples;
    std::vector<float> expected(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float once = samples[i] * (1.0F / 3) + 0.0F;
      expected[i] = once * -0.7F + 0.0F + 100.0F;
    }
    expected[0] = 42.0F;
    JobInfo info;
    info.width = info.height = 64;
    graph.process(samples.data(), samples.data(), info);  // in place on the host's side
    in_one_lease.process(same.data(), same.data(), info);
    ASSERT_EQ(samples, expected) << "job " << job;
    ASSERT_EQ(samples, same) << "job " << job;
  }
  EXPECT_EQ(first.metrics().jobs, 5u);
  EXPECT_EQ(first.metrics().strikes + second.metrics().strikes + third.metrics().strikes, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GraphMixTest,
                         ::testing::Combine(::testing::ValuesIn(every_kind),
                                            ::testing::ValuesIn(every_kind),
                                            ::testing::ValuesIn(every_kind)),
                         [](const auto& mix) {
                           return std::string(to_string(std::get<0>(mix.param))) + '_' +
                                  to_string(std::get<1>(mix.param)) + '_' +
                                  to_string(std::get<2>(mix.param));
                         });

// Calls with which the host waits for the device, or may. A broker without a time limit for jobs
// does not ask whether work is done.
std::uint64_t waits(const SoftwareControls& controls) {
  std::uint64_t made = 0;
  for (const char* call : {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize",
                           "cuStreamQuery", "cuEventQuery", "cuMemcpy", "cuMemcpyPeer",
                           "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2"}) {
    made += controls.call_count(call);
  }
  return made;
}

TEST_F(BrokerTest, AJobWaitsOnceHoweverManyStagesItHas) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device counts its calls";
  std::vector<PluginInstance> instances;
  for (std::size_t i = 0; i < std::size(every_kind); ++i) {
    instances.push_back(broker.create(broker.load(test_plugin(library_names[i])), "affine",
                                      {Placement(0), LeaseChoice(every_kind[i]), 0}));
    instances.back().activate(test_sizes);
    ASSERT_EQ(instances.back().lease().granted.kind, every_kind[i]);
  }
  const auto waits_of_a_job = [&](const std::vector<PluginInstance*>& stages) {
    Graph graph(broker, stages, test_sizes);
    float pixel[4] = {1, 2, 3, 4};
    controls.start_counting();
    for (int job = 0; job < 2; ++job) graph.process(pixel, pixel, {});
    const std::uint64_t made = waits(controls);
    controls.stop_counting();
    EXPECT_EQ(made % 2, 0u);
    return made / 2;
  };
  std::vector<PluginInstance*> stages;
  for (std::size_t count = 1; count <= 8; ++count) {
    stages.push_back(&instances[count % instances.size()]);
    EXPECT_EQ(waits_of_a_job(stages), 1u) << count << " stages";
  }
  // The control: a plug-in that waits is counted.
  PluginInstance waiting = active("synchronises");
  stages.push_back(&waiting);
  EXPECT_EQ(waits_of_a_job(stages), 2u);
}

// Memory of one context can be read from another on today's drivers, so equal bytes do not show it.
// The plug-in asks the driver itself. It has an answer for its own memory only: memory of a pool
// belongs to no context.
TEST_F(BrokerTest, LentBuffersBelongToTheStagesOwnContext) {
  reopen_with(MemorySource::driver);
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own}) {
    PluginInstance first = active("owns_buffers", LeaseKind::private_own);
    PluginInstance second =
        broker.create(twin, "owns_buffers", {Placement(0), LeaseChoice(kind), 0});
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

TEST_F(BrokerTest, APluginThatAnswersAgainFindsItsWorkDone) {
  PluginInstance instance = active("again_when_done");
  for (int job = 0; job < 2; ++job) {
    const std::vector<float> samples = run({&instance});
    EXPECT_EQ(samples[1], 1) << "the second call passes the input on";
  }
  EXPECT_EQ(instance.metrics().launches, 2u);
}

TEST_F(BrokerTest, ProcessThatAnswersAgainIsCalledOnceMore) {
  PluginInstance instance = active("again_once");
  EXPECT_EQ(run({&instance})[3], 3.0F);
  EXPECT_EQ(run({&instance})[3], 3.0F);
  EXPECT_EQ(instance.metrics().jobs, 2u);
}

TEST_F(BrokerTest, OneInstanceMayStandInAGraphTwice) {
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
  std::vector<std::unique_ptr<Graph>> graphs;
  for (auto& instance : instances) {
    graphs.push_back(
        std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&instance}, test_sizes));
  }
  std::vector<int> wrong(threads, 0);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      std::vector<float> input(32 * 32 * 4, 1.0F), output(input.size());
      JobInfo job;
      job.width = job.height = 32;
      for (int round = 0; round < 50; ++round) {
        graphs[static_cast<std::size_t>(i)]->process(input.data(), output.data(), job);
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
