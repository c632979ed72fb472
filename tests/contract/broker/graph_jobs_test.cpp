// SPDX-License-Identifier: Apache-2.0
// Jobs of graphs: several in flight, late ones, ports in the host's device memory, who is told.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "broker_fixture.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/guard.hpp"
#include "ctxbroker/stream.hpp"
#include "ctxbroker/tenant.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::uint32_t width = 64, height = 64;
constexpr std::size_t samples = std::size_t{width} * height * 4;

JobInfo picture() {
  JobInfo job;
  job.width = width;
  job.height = height;
  return job;
}

// ---- Ports on the device ----------------------------------------------------------------------

using Kinds = std::tuple<LeaseKind, LeaseKind>;  // the host's and the plug-in's

class DevicePortsTest : public BrokerTest, public ::testing::WithParamInterface<Kinds> {
 protected:
  DevicePortsTest()
      : tenant(broker.open_tenant("frames", {LeaseChoice(std::get<0>(GetParam()))})) {}

  GraphDescription description(PluginInstance& instance) {
    GraphDescription made;
    made.inputs = {{"in", 0, SampleType::float32, true}};
    made.outputs = {{"out", 0, SampleType::float32, true}};
    made.nodes = {{"node", &instance}};
    made.edges = {{"in", "node"}, {"node", "out"}};
    made.tenant = &tenant;
    return made;
  }
  PluginInstance doubling() {
    PluginInstance instance = create("affine", std::get<1>(GetParam()));
    instance.set_parameter("factor", 2);
    instance.activate(test_sizes);
    return instance;
  }
  static void* address(const DeviceMemory& memory) {
    return reinterpret_cast<void*>(memory.address());
  }
  void fill(const DeviceMemory& memory, float value, CUstream stream) {
    tenant.run(
        0, [&] { ASSERT_EQ(driver.fill(memory.address(), value, samples, stream), CUDA_SUCCESS); });
  }
  std::vector<float> fetch(const DeviceMemory& memory, CUstream stream) {
    std::vector<float> got(samples);
    tenant.run(0, [&] { EXPECT_EQ(driver.fetch(got, memory.address(), stream), CUDA_SUCCESS); });
    return got;
  }

  Tenant tenant;
  RawDriver driver{broker.driver().path};
};

TEST_P(DevicePortsTest, JobsAndTheHostsStreamFollowEachOther) {
  PluginInstance instance = doubling();
  GraphOptions options;
  options.jobs_in_flight = 3;
  Graph graph(broker, description(instance), test_sizes, options);
  const DeviceMemory in(tenant, samples * sizeof(float)), out(tenant, samples * sizeof(float));
  const Stream stream(tenant);
  for (int job = 1; job <= 20; ++job) {
    // Nobody waits for anything but the stream.
    fill(in, static_cast<float>(job), stream.get());
    const std::uint64_t number =
        graph.submit({{address(in)}, {address(out)}, stream.get()}, picture());
    graph.follow(number, stream.get());
    EXPECT_THAT(fetch(out, stream.get()), Each(2.0F * static_cast<float>(job))) << job;
    EXPECT_EQ(graph.finish(number), JobOutcome::done);
  }
}

TEST_P(DevicePortsTest, OnePortMayBeOnTheDeviceAndTheOtherInHostMemory) {
  PluginInstance instance = doubling();
  GraphDescription made = description(instance);
  made.outputs[0].on_device = false;
  Graph graph(broker, made, test_sizes);
  const DeviceMemory in(tenant, samples * sizeof(float));
  const Stream stream(tenant);
  fill(in, 5, stream.get());
  std::vector<float> out(samples);
  graph.process({{address(in)}, {out.data()}, stream.get()}, picture());
  EXPECT_THAT(out, Each(10.0F));
}

TEST_P(DevicePortsTest, LossOfTheHostsLeaseFailsOneJob) {
  PluginInstance instance = doubling();
  Graph graph(broker, description(instance), test_sizes);
  DeviceMemory in(tenant, samples * sizeof(float)), out(tenant, samples * sizeof(float));
  const auto run = [&](float value) {
    const Stream stream(tenant);
    fill(in, value, stream.get());
    graph.process({{address(in)}, {address(out)}, stream.get()}, picture());
    EXPECT_THAT(fetch(out, stream.get()), Each(2 * value));
  };
  run(1);
  broker.force_loss(tenant.id(), 0, "a test");
  EXPECT_THAT(error_text(ErrorKind::context_lost,
                         [&] {
                           graph.process({{address(in)}, {address(out)}}, picture());
                         }),
              HasSubstr("allocate it again"));
  in = DeviceMemory(tenant, samples * sizeof(float));
  out = DeviceMemory(tenant, samples * sizeof(float));
  run(3);
}

// The lease with the host's frames stays as it is.
TEST_P(DevicePortsTest, AStreamOfAnotherLeaseIsRefused) {
  PluginInstance instance = doubling();
  Graph graph(broker, description(instance), test_sizes);
  const DeviceMemory in(tenant, samples * sizeof(float)), out(tenant, samples * sizeof(float));
  const Stream stream(tenant);
  Tenant other = broker.open_tenant("other", {LeaseChoice(LeaseKind::private_own)});
  const Stream stranger(other);
  EXPECT_THAT(error_text(ErrorKind::driver_call,
                         [&] {
                           graph.submit({{address(in)}, {address(out)}, stranger.get()}, picture());
                         }),
              HasSubstr("use one in the lease"));
  EXPECT_EQ(tenant.lease().state, LeaseState::ready);
  fill(in, 3, stream.get());
  graph.process({{address(in)}, {address(out)}, stream.get()}, picture());
  EXPECT_THAT(fetch(out, stream.get()), Each(6.0F));
}

TEST_P(DevicePortsTest, TheTenantCannotBeClosedBeforeTheGraphEnds) {
  PluginInstance instance = doubling();
  {
    const DeviceMemory in(tenant, samples * sizeof(float)), out(tenant, samples * sizeof(float));
    Graph graph(broker, description(instance), test_sizes);
    const std::uint64_t job = graph.submit({{address(in)}, {address(out)}}, picture());
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { tenant.close(); }),
                HasSubstr("end the graph first"));
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
  }
  tenant.close();
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DevicePortsTest,
    ::testing::Combine(
        ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
        ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green)),
    [](const auto& info) {
      return std::string(to_string(std::get<0>(info.param))) + "_" +
             to_string(std::get<1>(info.param));
    });

TEST_F(BrokerTest, GraphWithBadEndsOnTheDeviceIsRefused) {
  PluginInstance instance = active("affine");
  Tenant tenant = broker.open_tenant("frames", {});
  GraphDescription made;
  made.inputs = {{"in", 0, SampleType::float32, true}};
  made.outputs = {{"out"}};
  made.nodes = {{"node", &instance}};
  made.edges = {{"in", "node"}, {"node", "out"}};
  const auto refusal = [&](const GraphOptions& options = {}) {
    return error_text(ErrorKind::invalid_argument,
                      [&] { Graph(broker, made, test_sizes, options); });
  };
  EXPECT_THAT(refusal(), HasSubstr("port in is on the device, and the description has no tenant"));
  made.tenant = &tenant;
  GraphOptions options;
  options.late = LateJobs::dry;
  EXPECT_THAT(refusal(options), HasSubstr("a late job can only be delivered"));
  Broker other = Broker::open(BrokerTest::options());
  Tenant stranger = other.open_tenant("stranger", {});
  made.tenant = &stranger;
  EXPECT_THAT(refusal(), HasSubstr("belongs to another broker"));
}

TEST_F(BrokerTest, StreamsOfTheHostNeedAnEndOnTheDevice) {
  PluginInstance instance = active("affine");
  Tenant tenant = broker.open_tenant("frames", {});
  const Stream stream(tenant);
  Graph graph(broker, {&instance}, test_sizes);
  float pixel[4] = {};
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] {
                           graph.submit({{pixel}, {pixel}, stream.get()}, {});
                         }),
              HasSubstr("no port of the graph is on the device"));
  const std::uint64_t job = graph.submit({{pixel}, {pixel}}, {});
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { graph.follow(job, stream.get()); }),
              HasSubstr("no port of it is on the device"));
  EXPECT_EQ(graph.finish(job), JobOutcome::done);
  for (const std::uint64_t number : {std::uint64_t{0}, job + 1}) {
    EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { graph.finish(number); }),
                HasSubstr("was not submitted"));
  }
}

// ---- Deadlines --------------------------------------------------------------------------------

constexpr std::uint64_t ms = 1000000;
constexpr std::size_t few = 4;  // samples, so that the kernel has one block

JobInfo pixel(std::uint64_t deadline_ns = 0) {
  JobInfo job;
  job.deadline_ns = deadline_ns;
  return job;
}

// A node that works for 300 ms, after one that is quick.
class LateTest : public BrokerTest {
 protected:
  void build(LateJobs late, std::uint32_t in_flight = 1) {
    GraphOptions options;
    options.late = late;
    options.jobs_in_flight = in_flight;
    graph = std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&quick, &slow}, test_sizes,
                                    options);
  }
  JobOutcome run(std::uint64_t deadline_ns) {
    std::fill(output.begin(), output.end(), -1.0F);
    return graph->process({{input.data()}, {output.data()}}, pixel(deadline_ns));
  }

  PluginInstance quick = active("affine"), slow = active("rests");
  std::unique_ptr<Graph> graph;
  std::vector<float> input = std::vector<float>(few, 7), output = std::vector<float>(few);
};

TEST_F(LateTest, JobBeforeItsDeadlineIsDone) {
  build(LateJobs::drop);
  EXPECT_EQ(run(20000 * ms), JobOutcome::done);
  EXPECT_EQ(run(0), JobOutcome::done) << "it has no deadline";
  EXPECT_EQ(slow.metrics().late_jobs, 0u);
}

TEST_F(LateTest, ALateJobIsDeliveredAndCountedForWhoeverIsLate) {
  build(LateJobs::deliver);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(150 * ms), JobOutcome::late);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
  EXPECT_EQ(slow.metrics().late_jobs, 1u);
  EXPECT_EQ(quick.metrics().late_jobs, 0u);
  EXPECT_EQ(slow.metrics().jobs, 1u);
}

TEST_F(LateTest, ALateJobGivesTheDrySignalAtItsDeadline) {
  build(LateJobs::dry);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(20 * ms), JobOutcome::dry);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
  EXPECT_EQ(output, input);
  EXPECT_EQ(slow.metrics().late_jobs, 1u);
  EXPECT_EQ(slow.metrics().jobs, 0u) << "its work goes on";
  EXPECT_EQ(run(0), JobOutcome::done) << "the next job waits for it";
  EXPECT_EQ(slow.metrics().jobs, 2u);
}

TEST_F(LateTest, LateJobOfADroppingGraphIsDropped) {
  build(LateJobs::drop);
  EXPECT_EQ(run(20 * ms), JobOutcome::dropped);
  EXPECT_THAT(output, Each(-1.0F)) << "the graph does not touch it";
  graph.reset();
  EXPECT_EQ(slow.metrics().jobs, 1u) << "the graph's end waited for its work";
}

TEST_F(LateTest, JobsInFlightAreLateOneByOne) {
  build(LateJobs::drop, 3);
  const std::uint64_t first = graph->submit({{input.data()}, {output.data()}}, pixel(20 * ms));
  const std::uint64_t second = graph->submit({{input.data()}, {output.data()}}, pixel());
  const std::uint64_t third = graph->submit({{input.data()}, {output.data()}}, pixel(20 * ms));
  EXPECT_EQ(graph->finish(third), JobOutcome::dropped) << "it waits for the two before";
  EXPECT_EQ(graph->finish(first), JobOutcome::dropped);
  EXPECT_EQ(graph->finish(second), JobOutcome::done);
  const std::uint64_t fourth = graph->submit({{input.data()}, {output.data()}}, pixel());
  EXPECT_EQ(graph->finish(fourth), JobOutcome::done);
  EXPECT_EQ(graph->finish(first), JobOutcome::forgotten);
}

// ---- Who is told ------------------------------------------------------------------------------

TEST_F(BrokerTest, TheHostIsToldOfEachJobOnce) {
  PluginInstance first = active("affine"), second = active("bias");
  std::map<std::uint64_t, int> told;
  std::mutex mutex;
  GraphOptions options;
  options.jobs_in_flight = 4;
  options.on_done = [&](std::uint64_t job) {
    const std::lock_guard lock(mutex);
    ++told[job];
  };
  // Both outputs come from nodes of their own.
  GraphDescription description;
  description.inputs = {{"in"}};
  description.outputs = {{"one"}, {"other"}};
  description.nodes = {{"first", &first}, {"second", &second}};
  description.edges = {{"in", "first"}, {"in", "second"}, {"first", "one"}, {"second", "other"}};
  std::uint64_t last = 0;
  float in[4] = {1, 2, 3, 4}, one[4], other[4];
  {
    Graph graph(broker, description, test_sizes, options);
    for (int job = 0; job < 40; ++job) last = graph.submit({{in}, {one, other}}, {});
    graph.finish(last);
  }
  EXPECT_EQ(told.size(), last);
  for (const auto& [job, times] : told) EXPECT_EQ(times, 1) << job;
}

// The callback runs on the driver's threads, where an exception would end the process.
TEST_F(BrokerTest, ExceptionOfTheHostsCallbackIsRecordedAndTheJobsGoOn) {
  PluginInstance filter = active("affine");
  GraphOptions options;
  options.on_done = [](std::uint64_t job) {
    if (job == 2) throw 3;
    throw std::runtime_error("the host's own");
  };
  Graph graph(broker, {&filter}, test_sizes, options);
  float sample[4] = {};
  for (int job = 0; job < 2; ++job) graph.process(sample, sample, pixel(1));
  EXPECT_THAT(said("graph"), Contains(HasSubstr("on_done threw for job 1: the host's own")));
  EXPECT_THAT(said("graph"), Contains(HasSubstr("on_done threw for job 2: something")));
}

// A host that is woken up looks at once, when the call that told it has not returned yet.
TEST_F(BrokerTest, AJobIsDoneWhenTheHostIsTold) {
  PluginInstance slow = active("rests");
  std::atomic<bool> told{false}, looked{false};
  GraphOptions options;
  options.late = LateJobs::drop;
  options.on_done = [&](std::uint64_t) {
    told = true;
    while (!looked) std::this_thread::yield();
  };
  Graph graph(broker, {&slow}, test_sizes, options);
  float sample[4] = {};
  const std::uint64_t job = graph.submit({{sample}, {sample}}, pixel(1));
  EXPECT_FALSE(graph.is_done(job));
  while (!told) std::this_thread::yield();
  EXPECT_TRUE(graph.is_done(job));
  looked = true;
  EXPECT_EQ(graph.finish(job), JobOutcome::done) << "it is not dropped";
}

// The lease is hung, and its work ends later: with the graph still there, or when it has ended.
TEST_F(BrokerTest, NobodyIsToldOfAJobThatHung) {
  BrokerOptions impatient = options();
  impatient.job_timeout = impatient.end_timeout = std::chrono::milliseconds(50);
  for (const bool graph_ends : {false, true}) {
    Broker other = Broker::open(impatient);
    PluginInstance slow = other.create(other.load(test_plugin("behaviours")), "rests");
    slow.activate(test_sizes);
    std::atomic<int> told{0};
    GraphOptions telling;
    telling.on_done = [&](std::uint64_t) { ++told; };
    float sample[4] = {};
    auto graph =
        std::make_unique<Graph>(other, std::vector<PluginInstance*>{&slow}, test_sizes, telling);
    EXPECT_THROW(graph->process(sample, sample, {}), Error);
    if (graph_ends) graph.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    EXPECT_EQ(told, 0);
  }
}

TEST_F(BrokerTest, AJobThatALossFinishedIsRemembered) {
  PluginInstance instance = active("affine");
  GraphOptions several;
  several.jobs_in_flight = 3;
  Graph graph(broker, {&instance}, test_sizes, several);
  float in[4] = {1, 2, 3, 4}, first[4] = {}, second[4] = {};
  const std::uint64_t before = graph.submit({{in}, {first}}, {});
  broker.force_loss(behaviours().tenant(), 0, "a test");
  const std::uint64_t after = graph.submit({{in}, {second}}, {});
  EXPECT_EQ(graph.finish(before), JobOutcome::done);
  EXPECT_THAT(first, testing::ElementsAreArray(in));
  EXPECT_EQ(graph.finish(after), JobOutcome::done);
}

TEST_F(BrokerTest, DeviceTimeIsMeasuredOnlyOnRequest) {
  PluginInstance instance = active("affine");
  float pixel[4] = {};
  Graph(broker, {&instance}, test_sizes).process(pixel, pixel, {});
  EXPECT_EQ(instance.metrics().device_seconds, 0);
  GraphOptions options;
  options.measure = true;
  Graph(broker, {&instance}, test_sizes, options).process(pixel, pixel, {});
  EXPECT_GT(instance.metrics().device_seconds, 0);
}

}  // namespace
}  // namespace ctxbroker
