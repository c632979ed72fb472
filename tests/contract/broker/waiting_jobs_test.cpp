// SPDX-License-Identifier: Apache-2.0
// Jobs that wait until they can be in flight, and that can be cancelled.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/tenant.hpp"

namespace ctxbroker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Ne;

constexpr std::size_t few = 4;  // samples of a picture of one pixel
constexpr float untouched = -1;

class WaitingJobsTest : public BrokerTest {
 protected:
  void build(PluginInstance& instance, std::uint32_t in_flight, std::uint32_t waiting) {
    GraphOptions options;
    options.jobs_in_flight = in_flight;
    options.jobs_waiting = waiting;
    options.on_done = [this](std::uint64_t job) {
      const std::lock_guard lock(mutex);
      ++told[job];
    };
    graph = std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&instance}, test_sizes,
                                    options);
  }
  // The input is as long as the test, because a job that waits reads it when it begins.
  std::uint64_t submit(float value) {
    inputs.emplace_back(few, value);
    outputs.emplace_back(few, untouched);
    return graph->submit({{inputs.back().data()}, {outputs.back().data()}}, {});
  }
  const std::vector<float>& output(std::uint64_t job) const { return outputs[job - 1]; }
  int times_told(std::uint64_t job) {
    const std::lock_guard lock(mutex);
    return told[job];
  }

  PluginInstance& kept(const char* plugin) { return instances.emplace_back(active(plugin)); }

  std::list<PluginInstance> instances;  // they outlive the graph
  std::mutex mutex;
  std::map<std::uint64_t, int> told;
  std::list<std::vector<float>> inputs;
  std::deque<std::vector<float>> outputs;
  std::unique_ptr<Graph> graph;
};

// Each job of "rests" works for 300 ms, so those behind it wait. It writes times.
TEST_F(WaitingJobsTest, AJobIsCancelledBeforeItBegins) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 3);
  const auto begin = std::chrono::steady_clock::now();
  for (int job = 1; job <= 4; ++job) submit(static_cast<float>(job));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250))
      << "nobody waited for a job";
  EXPECT_FALSE(graph->is_done(2));
  EXPECT_FALSE(graph->cancel(1)) << "it has begun";
  EXPECT_TRUE(graph->cancel(3));
  EXPECT_FALSE(graph->cancel(3)) << "once is enough";
  EXPECT_EQ(times_told(3), 1);
  EXPECT_TRUE(graph->is_done(3));
  EXPECT_EQ(graph->finish(3), JobOutcome::cancelled) << "without a wait for the older ones";
  EXPECT_FALSE(graph->is_done(2));
  EXPECT_EQ(graph->finish(4), JobOutcome::done);
  EXPECT_EQ(graph->finish(2), JobOutcome::done);
  EXPECT_EQ(graph->finish(3), JobOutcome::cancelled);
  for (const std::uint64_t job : {1, 2, 4}) {
    EXPECT_THAT(output(job), Each(Ne(untouched)));
    EXPECT_EQ(times_told(job), 1);
  }
  EXPECT_THAT(output(3), Each(untouched));
  EXPECT_EQ(slow.metrics().jobs, 3U);
  for (const std::uint64_t job : {0, 5}) {
    error_text(ErrorKind::invalid_argument, [&] { graph->cancel(job); });
  }
}

// The control: without a queue, submit waits and nothing can be cancelled.
TEST_F(WaitingJobsTest, WithoutAQueueSubmitWaits) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 0);
  const auto begin = std::chrono::steady_clock::now();
  submit(1);
  submit(2);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
  EXPECT_FALSE(graph->cancel(2));
  EXPECT_EQ(graph->finish(2), JobOutcome::done);
}

TEST_F(WaitingJobsTest, AFullQueueHoldsSubmitUp) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 1);
  submit(1);
  submit(2);
  const auto begin = std::chrono::steady_clock::now();
  submit(3);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
  EXPECT_THAT(output(1), Each(Ne(untouched))) << "the oldest one is finished";
  EXPECT_FALSE(graph->cancel(2)) << "it has begun";
  EXPECT_TRUE(graph->cancel(3));
  EXPECT_EQ(graph->finish(2), JobOutcome::done);
}

TEST_F(WaitingJobsTest, AskingWhetherAJobIsDoneLetsTheOthersBegin) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 2);
  for (int job = 1; job <= 3; ++job) submit(static_cast<float>(job));
  while (!graph->is_done(3)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(output(2), Each(Ne(untouched)));
  EXPECT_EQ(graph->finish(3), JobOutcome::done);
  EXPECT_THAT(output(3), Each(Ne(untouched)));
}

TEST_F(WaitingJobsTest, TheEndOfAGraphBeginsNoOtherJob) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 5);
  for (int job = 1; job <= 4; ++job) submit(static_cast<float>(job));
  graph.reset();
  EXPECT_EQ(slow.metrics().jobs, 1U);
  EXPECT_THAT(output(1), Each(Ne(untouched)));
  EXPECT_THAT(output(2), Each(untouched));
  EXPECT_EQ(times_told(2), 0);
}

TEST_F(WaitingJobsTest, ErrorsOfAJobAreThrownBySubmitOrFinish) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 3);
  submit(1);
  error_text(ErrorKind::invalid_argument, [&] { graph->submit({{nullptr}, {nullptr}}, {}); });
  EXPECT_EQ(submit(2), 2U) << "what was refused has no number";
  EXPECT_EQ(graph->finish(2), JobOutcome::done);
  graph.reset();

  PluginInstance& bad = kept("every_second_fails");
  GraphOptions options;
  options.jobs_waiting = 3;
  graph = std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&slow, &bad}, test_sizes,
                                  options);
  error_text(ErrorKind::plugin_failed, [&] { submit(0); });  // it has begun at once
  inputs.clear();
  outputs.clear();
  for (int job = 1; job <= 4; ++job) submit(static_cast<float>(job));
  int failures = 0;
  for (const std::uint64_t job : {4, 3, 2, 1}) {
    try {
      EXPECT_EQ(graph->finish(job), JobOutcome::done);
      EXPECT_NE(output(job)[0], untouched);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::plugin_failed);
      EXPECT_THAT(error.what(), HasSubstr("every_second_fails"));
      EXPECT_EQ(graph->finish(job), JobOutcome::forgotten) << "it is told once";
      ++failures;
    }
  }
  EXPECT_EQ(failures, 2);
}

TEST_F(WaitingJobsTest, ALossOfTheLeaseLosesNoJobThatWaits) {
  PluginInstance& slow = kept("rests");
  build(slow, 1, 3);
  for (int job = 1; job <= 3; ++job) submit(static_cast<float>(job));
  broker.force_loss(slow.lease().tenant, 0, "a test");
  for (const std::uint64_t job : {1, 2, 3}) {
    EXPECT_EQ(graph->finish(job), JobOutcome::done);
    EXPECT_THAT(output(job), Each(Ne(untouched)));
  }
}

TEST_F(WaitingJobsTest, WaitingJobsBehindHungWorkAreForgotten) {
  BrokerOptions impatient = options();
  impatient.job_timeout = impatient.end_timeout = std::chrono::milliseconds(50);
  Broker other = Broker::open(impatient);
  {
    PluginInstance slow = other.create(other.load(test_plugin("behaviours")), "rests");
    slow.activate(test_sizes);
    GraphOptions wanted;
    wanted.jobs_waiting = 3;
    graph = std::make_unique<Graph>(other, std::vector<PluginInstance*>{&slow}, test_sizes, wanted);
    for (int job = 1; job <= 3; ++job) submit(static_cast<float>(job));
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { graph->finish(1); }),
                HasSubstr("did not end within"));
    EXPECT_EQ(graph->finish(2), JobOutcome::forgotten);
    EXPECT_EQ(graph->finish(3), JobOutcome::forgotten);
    EXPECT_FALSE(graph->cancel(3));
    EXPECT_THAT(output(3), Each(untouched));
    graph.reset();
  }
  other.close();
}

TEST_F(WaitingJobsTest, JobWaitsWhileDroppedWorkGoesOn) {
  PluginInstance& slow = kept("rests");
  GraphOptions wanted;
  wanted.jobs_waiting = 2;
  wanted.late = LateJobs::drop;
  graph = std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&slow}, test_sizes, wanted);
  for (int job = 1; job <= 2; ++job) {
    inputs.emplace_back(few, static_cast<float>(job));
    outputs.emplace_back(few, untouched);
    JobInfo info;
    info.deadline_ns = 20'000'000;
    graph->submit({{inputs.back().data()}, {outputs.back().data()}}, info);
  }
  EXPECT_EQ(graph->finish(1), JobOutcome::dropped);
  EXPECT_TRUE(graph->cancel(2)) << "the work of the late one goes on, so it waits";
}

TEST_F(WaitingJobsTest, BadQueueOptionsAreRefused) {
  PluginInstance& instance = kept("affine");
  GraphOptions wanted;
  wanted.jobs_waiting = 1025;
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { Graph(broker, {&instance}, test_sizes, wanted); }),
              HasSubstr("jobs_waiting is above 1024"));
  wanted.jobs_waiting = 1;
  Tenant tenant = broker.open_tenant("frames", {});
  GraphDescription description;
  description.inputs = {{"in", 0, SampleType::float32, true}};
  description.outputs = {{"out"}};
  description.nodes = {{"node", &instance}};
  description.edges = {{"in", "node"}, {"node", "out"}};
  description.tenant = &tenant;
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { Graph(broker, description, test_sizes, wanted); }),
              HasSubstr("no job of the graph can wait"));
}

// Beside what has to come of each job. Seeds are printed.
TEST_F(WaitingJobsTest, RandomCallsGiveEachJobItsOwnResult) {
  PluginInstance instance = create("affine");
  instance.set_parameter("factor", 2);
  instance.activate(test_sizes);
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::uint32_t below) { return random() % below; };
    inputs.clear();
    outputs.clear();
    {
      const std::lock_guard lock(mutex);
      told.clear();
    }
    const std::uint64_t before = instance.metrics().jobs;
    build(instance, 1 + draw(3), draw(5));
    std::uint64_t last = 0, count = 0;
    std::map<std::uint64_t, JobOutcome> outcomes;
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t one =
          last == 0 ? 0 : last - draw(static_cast<std::uint32_t>(std::min<std::uint64_t>(last, 6)));
      switch (draw(6)) {
        case 0:
        case 1:
        case 2:
          ASSERT_EQ(submit(static_cast<float>(last + 1)), last + 1);
          ++last;
          break;
        case 3:
          if (one != 0 && graph->cancel(one)) {
            ++count;
            ASSERT_EQ(outcomes.count(one), 0U) << "it was finished, seed " << seed;
            outcomes[one] = JobOutcome::cancelled;
          }
          break;
        case 4:
          if (one != 0) static_cast<void>(graph->is_done(one));
          break;
        default: {
          if (one == 0) break;
          const JobOutcome outcome = graph->finish(one);
          if (outcome == JobOutcome::forgotten) break;  // it is long ago
          const auto known = outcomes.emplace(one, outcome).first;
          ASSERT_EQ(known->second, outcome) << "seed " << seed << ", job " << one;
        }
      }
    }
    if (last != 0) graph->finish(last);
    graph.reset();
    for (std::uint64_t job = 1; job <= last; ++job) {
      const bool is_cancelled = outcomes.count(job) != 0 && outcomes[job] == JobOutcome::cancelled;
      ASSERT_THAT(output(job), Each(is_cancelled ? untouched : 2 * static_cast<float>(job)))
          << "seed " << seed << ", job " << job << " of " << last;
      ASSERT_EQ(times_told(job), 1) << "seed " << seed << ", job " << job;
    }
    EXPECT_EQ(instance.metrics().jobs - before + count, last) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ctxbroker
