// SPDX-License-Identifier: Apache-2.0
// Jobs as graphs: the same bytes as without, whatever changes from job to job, and a word where a
// plug-in's work cannot be one.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobGraphTest : public BrokerTest {
 protected:
  PluginInstance create_with_graphs(const std::string& behaviour,
                                    LeaseKind lease = LeaseKind::automatic) {
    InstanceOptions options;
    options.lease = LeaseChoice(lease);
    options.job_graphs = true;
    return broker.create(behaviours(), behaviour, options);
  }
  PluginInstance active_with_graphs(const std::string& behaviour,
                                    LeaseKind lease = LeaseKind::automatic) {
    PluginInstance instance = create_with_graphs(behaviour, lease);
    instance.activate(test_sizes);
    return instance;
  }

  // Runs a job on the samples 0, 1, 2, ... and returns its output.
  static std::vector<float> job(Graph& row, std::uint32_t width, std::uint32_t height) {
    std::vector<float> samples(std::size_t{width} * height * 4);
    std::iota(samples.begin(), samples.end(), 0.0F);
    JobInfo info;
    info.width = width;
    info.height = height;
    row.process(samples.data(), samples.data(), info);
    return samples;
  }

  // Jobs of several sizes and factors.
  std::vector<std::vector<float>> jobs(PluginInstance& instance) {
    Graph row(broker, {&instance}, test_sizes);
    std::vector<std::vector<float>> outputs;
    for (const auto& [factor, width, height] :
         {std::tuple{1.0, 8u, 4u}, {3.0, 8u, 4u}, {3.0, 64u, 64u}, {2.0, 3u, 5u}, {2.0, 3u, 5u}}) {
      instance.set_parameter("factor", factor);
      outputs.push_back(job(row, width, height));
    }
    return outputs;
  }

  std::uint64_t graphs_held() const {
    std::uint64_t graphs = 0;
    for (const TenantMetrics& tenant : broker.metrics().tenants) {
      for (const LeaseMetrics& lease : tenant.leases) graphs += lease.graphs;
    }
    return graphs;
  }
};

class SameBytesTest : public JobGraphTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SameBytesTest, GraphedJobsGiveTheSameBytesInEachKindOfLease) {
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    PluginInstance plain = active(GetParam(), kind);
    PluginInstance graphed = active_with_graphs(GetParam(), kind);
    EXPECT_EQ(jobs(graphed), jobs(plain)) << to_string(kind);
    EXPECT_GE(graphed.metrics().graph_jobs, 5u);
    EXPECT_EQ(plain.metrics().graph_jobs, 0u);
    EXPECT_EQ(graphed.metrics().launches, plain.metrics().launches);
    EXPECT_EQ(graphs_held(), 1u);
    EXPECT_EQ(graphed.metrics().strikes, plain.metrics().strikes);
    graphed.deactivate();
    EXPECT_EQ(graphs_held(), 0u);
  }
  EXPECT_THAT(said("graph"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, SameBytesTest,
                         ::testing::Values("affine", "bias", "scratch", "bypass", "again_once",
                                           "packed", "repeats", "one_at_a_time"),
                         [](const auto& one) { return std::string(one.param); });

struct Hard {
  const char* behaviour;
  const char* says;
};

class HardToCaptureTest : public JobGraphTest, public ::testing::WithParamInterface<Hard> {};

// The plain run is the control: it waits, or allocates, and that is all right.
TEST_P(HardToCaptureTest, InstanceGoesOnWithoutAGraphAndReportsItOnce) {
  PluginInstance plain = active(GetParam().behaviour);
  PluginInstance graphed = create_with_graphs(GetParam().behaviour);
  for (int life = 0; life < 2; ++life) {
    graphed.activate(test_sizes);
    EXPECT_EQ(jobs(graphed), jobs(plain));
    EXPECT_EQ(graphed.metrics().graph_jobs, 0u);
    EXPECT_EQ(graphed.metrics().launches, plain.metrics().launches);
    EXPECT_EQ(graphs_held(), 0u);
    EXPECT_EQ(said("graph").size(), life + 1u) << "once for each activation";
    graphed.deactivate();
  }
  EXPECT_THAT(said("graph")[0],
              AllOf(HasSubstr(GetParam().behaviour), HasSubstr("its jobs cannot be graphs"),
                    HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, HardToCaptureTest,
    ::testing::Values(Hard{"synchronises", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                      Hard{"synchronises_blindly", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                      Hard{"allocates_async", "allocates or frees device memory in process"}),
    [](const auto& one) { return std::string(one.param.behaviour); });

TEST_F(JobGraphTest, RenewedLeaseCapturesANewGraph) {
  PluginInstance instance = active_with_graphs("affine");
  Graph row(broker, {&instance}, test_sizes);
  const std::vector<float> before = job(row, 8, 4);
  const std::uint64_t generation = instance.lease().generation;
  EXPECT_TRUE(broker.force_loss(instance.lease().tenant, 0, "a test"));
  EXPECT_EQ(job(row, 8, 4), before);
  EXPECT_NE(instance.lease().generation, generation);
  EXPECT_EQ(instance.metrics().graph_jobs, 2u);
  EXPECT_EQ(graphs_held(), 1u) << "the old one went with its context";
}

TEST_F(JobGraphTest, FailureOfAPluginDoesNotEndItsGraphs) {
  PluginInstance failing = active_with_graphs("every_second_fails");
  Graph row(broker, {&failing}, test_sizes);
  for (int pair = 0; pair < 2; ++pair) {
    error_text(ErrorKind::plugin_failed, [&] { job(row, 8, 4); });
    EXPECT_EQ(job(row, 8, 4)[3], 3.0F);
  }
  EXPECT_EQ(failing.metrics().graph_jobs, 2u);
  EXPECT_THAT(said("graph"), IsEmpty());
  PluginInstance throwing = active_with_graphs("process_throws");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&throwing}); }),
              HasSubstr("threw an exception"));
  throwing.deactivate();
  throwing.activate(test_sizes);
  PluginInstance refused = active_with_graphs("too_many_threads");
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { run({&refused}); }),
              HasSubstr("2048 threads"));
  EXPECT_EQ(refused.metrics().strikes, 1u) << "it was asked once";
}

}  // namespace
}  // namespace ctxbroker
