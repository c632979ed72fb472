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
