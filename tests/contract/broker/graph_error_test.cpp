// SPDX-License-Identifier: Apache-2.0
// Graphs that are refused or fail; they can be used again afterwards.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(BrokerTest, GraphOfBadStagesIsRefused) {
  PluginInstance instance = active("affine"), idle = create("affine");
  const auto refusal = [&](const std::vector<PluginInstance*>& stages,
                           const ActivationSizes& sizes) {
    return error_text(ErrorKind::invalid_argument, [&] { Graph(broker, stages, sizes); });
  };
  EXPECT_THAT(refusal({}, test_sizes), HasSubstr("at least one"));
  EXPECT_THAT(refusal({nullptr}, test_sizes), HasSubstr("null"));
  EXPECT_THAT(refusal({&instance, &idle}, test_sizes), HasSubstr("not active"));
  EXPECT_THAT(refusal({&instance}, {65, 64, 0, false}), HasSubstr("active for 64 x 64 only"));
  EXPECT_THAT(refusal({&instance}, {0, 64, 0, false}), HasSubstr("0"));
  Broker other = Broker::open();
  EXPECT_THAT(
      error_text(ErrorKind::invalid_argument, [&] { Graph(other, {&instance}, test_sizes); }),
      HasSubstr("another broker"));
}

TEST_F(BrokerTest, JobLargerThanTheGraphIsRefused) {
  PluginInstance instance = active("affine");
  Graph graph(broker, {&instance}, {32, 32, 0, false});
  std::vector<float> samples(64 * 64 * 4);
  const auto refusal = [&](std::uint32_t width, std::uint32_t height) {
    JobInfo job;
    job.width = width;
    job.height = height;
    return error_text(ErrorKind::invalid_argument,
                      [&] { graph.process(samples.data(), samples.data(), job); });
  };
  EXPECT_THAT(refusal(33, 32), HasSubstr("33 x 32 does not fit into 32 x 32"));
  EXPECT_THAT(refusal(32, 33), HasSubstr("does not fit"));
  EXPECT_THAT(refusal(0, 1), HasSubstr("is 0"));
  error_text(ErrorKind::invalid_argument, [&] { graph.process(nullptr, samples.data(), {}); });
}

TEST_F(BrokerTest, AnInstanceThatWasReactivatedNeedsANewGraph) {
  PluginInstance instance = active("affine");
  Graph graph(broker, {&instance}, test_sizes);
  float pixel[4] = {1, 2, 3, 4};
  graph.process(pixel, pixel, {});
  instance.deactivate();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { graph.process(pixel, pixel, {}); }),
              HasSubstr("deactivated"));
  instance.activate(test_sizes);
  error_text(ErrorKind::wrong_state, [&] { graph.process(pixel, pixel, {}); });
}

// The new activation may have another sample rate, for which the graph was not made.
TEST_F(BrokerTest, ReactivatedInstanceNeedsANewGraphAlsoAfterALoss) {
  const PluginLibrary library = behaviours();
  for (const bool is_lost_first : {true, false}) {
    PluginInstance instance = active("affine");
    Graph graph(broker, {&instance}, test_sizes);
    float pixel[4] = {1, 2, 3, 4};
    if (is_lost_first) broker.force_loss(library.tenant(), 0, "a test");
    instance.deactivate();
    instance.activate(test_sizes);
    if (!is_lost_first) broker.force_loss(library.tenant(), 0, "a test");
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { graph.process(pixel, pixel, {}); }),
                HasSubstr("deactivated"));
  }
}

TEST_F(BrokerTest, GraphFollowsALeaseThatAnotherGraphHasRenewed) {
  const PluginLibrary library = behaviours();
  PluginInstance instance = active("affine");
  Graph one(broker, {&instance}, test_sizes), two(broker, {&instance}, test_sizes);
  float pixel[4] = {1, 2, 3, 4};
  const std::uint64_t job = one.submit({{pixel}, {pixel}}, {});
  EXPECT_EQ(one.finish(job), JobOutcome::done);
  broker.force_loss(library.tenant(), 0, "a test");
  two.process(pixel, pixel, {});
  one.process(pixel, pixel, {});
  EXPECT_EQ(instance.metrics().jobs, 3U);
}

TEST_F(BrokerTest, AFailedJobSaysWhatThePluginSaid) {
  PluginInstance good = active("affine"), bad = active("process_fails");
  EXPECT_THAT(
      error_text(ErrorKind::plugin_failed,
                 [&] {
                   run({&good, &bad, &good});
                 }),
      AllOf(HasSubstr("process_fails"), HasSubstr("the film is torn"), HasSubstr("CTXB_ERROR")));
  EXPECT_EQ(good.metrics().jobs, 0u) << "a failed job does not count";
}

TEST_F(BrokerTest, AGraphGoesOnAfterAFailure) {
  PluginInstance good = active("affine"), bad = active("every_second_fails");
  PluginInstance apart = active("affine", LeaseKind::private_own);
  Graph graph(broker, {&good, &apart, &bad, &good}, test_sizes);
  for (int pair = 0; pair < 5; ++pair) {
    float pixel[4] = {1, 2, 3, 4};
    error_text(ErrorKind::plugin_failed, [&] { graph.process(pixel, pixel, {}); });
    graph.process(pixel, pixel, {});
    EXPECT_THAT(pixel, testing::ElementsAre(1, 2, 3, 4));
  }
}

class FailureInFlightTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  std::uint64_t submit(Graph& graph, std::vector<float>& pixel) {
    return graph.submit({{pixel.data()}, {pixel.data()}}, {});
  }
  std::vector<float> pixel() const { return {1, 2, 3, 4}; }
};

TEST_P(FailureInFlightTest, FailedSubmitLeavesOlderJobsInFlight) {
  PluginInstance doubling = active("affine", GetParam()),
                 bad = active("every_second_fails", GetParam());
  doubling.set_parameter("factor", 2);
  GraphOptions options;
  options.jobs_in_flight = 3;
  Graph graph(broker, {&doubling, &bad}, test_sizes, options);
  std::vector<std::vector<float>> pixels(6, pixel());
  std::vector<std::uint64_t> jobs;
  for (std::vector<float>& each : pixels) {
    const bool fails = (&each - pixels.data()) % 2 == 0;
    if (fails) {
      error_text(ErrorKind::plugin_failed, [&] { submit(graph, each); });
      EXPECT_EQ(each, pixel()) << "the failed job writes nothing";
    } else {
      jobs.push_back(submit(graph, each));
      EXPECT_EQ(jobs.back(), jobs.size()) << "what failed has no number";
      EXPECT_EQ(each, pixel()) << "it is in flight";
    }
  }
  ASSERT_EQ(jobs.size(), 3U);
  for (const std::uint64_t job : jobs) EXPECT_EQ(graph.finish(job), JobOutcome::done);
  for (std::size_t i = 1; i < pixels.size(); i += 2) {
    EXPECT_THAT(pixels[i], testing::ElementsAre(2, 4, 6, 8)) << i;
  }
}

// The control: after a failed finish, the jobs behind it are gone.
TEST_P(FailureInFlightTest, FailedFinishLosesJobsInFlight) {
  BrokerOptions impatient = options();
  impatient.job_timeout = std::chrono::milliseconds(50);
  Broker other = Broker::open(impatient);
  InstanceOptions how;
  how.lease = LeaseChoice(GetParam());
  PluginInstance slow = other.create(other.load(test_plugin("behaviours")), "rests", how);
  slow.activate(test_sizes);
  GraphOptions several;
  several.jobs_in_flight = 3;
  Graph graph(other, {&slow}, test_sizes, several);
  std::vector<float> first = pixel(), second = pixel();
  const std::uint64_t one = submit(graph, first), two = submit(graph, second);
  EXPECT_THROW(static_cast<void>(graph.finish(one)), Error);
  EXPECT_EQ(graph.finish(one), JobOutcome::forgotten);
  EXPECT_EQ(graph.finish(two), JobOutcome::forgotten);
  EXPECT_EQ(second, pixel());
}

INSTANTIATE_TEST_SUITE_P(Leases, FailureInFlightTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& one) {
                           return one.param == LeaseKind::private_own
                                      ? std::string("own")
                                      : std::string(to_string(one.param));
                         });

TEST_F(BrokerTest, AnsweringAgainForEverIsAnError) {
  PluginInstance instance = active("always_again");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&instance}); }),
              HasSubstr("CTXB_AGAIN"));
}

TEST_F(BrokerTest, UnknownStatusOfProcessIsAnError) {
  PluginInstance instance = active("unknown_soft");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&instance}); }),
              HasSubstr("unknown status (99)"));
}

TEST_F(BrokerTest, AnExceptionInProcessIsStoppedAndStruck) {
  PluginInstance instance = active("process_throws");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&instance}); }),
              HasSubstr("threw an exception"));
  EXPECT_EQ(instance.metrics().strikes, 1u);
}

}  // namespace
}  // namespace ctxbroker
