// SPDX-License-Identifier: Apache-2.0
// Host memory that jobs use without staging: results, addresses, its end during a job, and when it
// is registered and unregistered. A test with a neighbour's long kernel runs in a child process,
// because what the kernel waits for stays until the exit.
#include <cuda.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/host_memory.hpp"
#include "support/child_process.hpp"
#include "support/hung_kernel.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::size_t picture_samples = std::size_t{64} * 64 * 4;
constexpr std::size_t picture_bytes = picture_samples * sizeof(float);

JobInfo whole_picture() {
  JobInfo job;
  job.width = job.height = 64;
  return job;
}

float* samples_in(const HostMemory& memory) {
  return static_cast<float*>(memory.data());
}

class HostMemoryTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  PluginInstance doubling() {
    PluginInstance instance = create("affine", GetParam());
    instance.set_parameter("factor", 2);
    instance.activate(test_sizes);
    return instance;
  }
  static std::vector<float> ramp() {
    std::vector<float> made(picture_samples);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i % 4093);
    return made;
  }
  static std::vector<float> twice(const std::vector<float>& of) {
    std::vector<float> made = of;
    for (float& one : made) one *= 2;
    return made;
  }
  static std::vector<float> copy_of(const float* from) { return {from, from + picture_samples}; }
  // Submits a job, waits until all of its work has ended, and returns what its output holds before
  // the job is finished: the result only if the device has written it there.
  static std::vector<float> before_finish(Graph& graph, const float* in, float* out) {
    std::fill_n(out, picture_samples, -1.0F);
    const std::uint64_t job = graph.submit({{in}, {out}}, whole_picture());
    while (!graph.is_done(job)) std::this_thread::yield();
    const std::vector<float> held = copy_of(out);
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
    return held;
  }
};

TEST_P(HostMemoryTest, ResultsAreTheSameWhereverTheBuffersLie) {
  PluginInstance instance = doubling();
  const std::vector<float> picture = ramp(), expected = twice(picture);
  std::vector<float> own_in = picture, own_out(picture_samples), registered(3 * picture_samples);
  const HostMemory memory = broker.host_memory(3 * picture_bytes + 64);
  const HostMemory others = broker.register_memory(registered.data(), 3 * picture_bytes);
  ASSERT_TRUE(memory.is_registered());
  ASSERT_TRUE(others.is_registered());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096, 0U);
  EXPECT_EQ(memory.bytes(), 3 * picture_bytes + 64);
  EXPECT_EQ(others.data(), registered.data());
  EXPECT_EQ(samples_in(memory)[0], 0.0F);
  float* const first = samples_in(memory);
  // At its start, inside, and up to its last byte.
  float* const places[] = {own_in.data(),     first,
                           first + 5,         first + 2 * picture_samples + 16,
                           registered.data(), registered.data() + 2 * picture_samples};
  Graph graph(broker, {&instance}, test_sizes);
  for (float* const in : places) {
    std::copy(picture.begin(), picture.end(), in);
    EXPECT_EQ(graph.process(in, own_out.data(), whole_picture()), JobOutcome::done);
    EXPECT_EQ(own_out, expected);
    EXPECT_EQ(copy_of(in), picture);
    std::fill(own_out.begin(), own_out.end(), 0.0F);
    EXPECT_EQ(graph.process(in, in, whole_picture()), JobOutcome::done) << "in place";
    EXPECT_EQ(copy_of(in), expected);
  }
}

TEST_P(HostMemoryTest, DeviceWritesAnOutputThatLiesThere) {
  PluginInstance instance = doubling();
  Graph graph(broker, {&instance}, test_sizes);
  const HostMemory memory = broker.host_memory(3 * picture_bytes);
  std::vector<float> picture = ramp(), registered(picture_samples + 1024), own(picture_samples);
  const HostMemory others = broker.register_memory(registered.data(), picture_bytes);
  EXPECT_EQ(before_finish(graph, picture.data(), samples_in(memory)), twice(picture));
  EXPECT_EQ(before_finish(graph, picture.data(), samples_in(memory) + 2 * picture_samples),
            twice(picture));
  EXPECT_EQ(before_finish(graph, picture.data(), registered.data()), twice(picture));
  // The control: an output in other memory is written by finish.
  EXPECT_THAT(before_finish(graph, picture.data(), own.data()), Each(-1.0F));
  EXPECT_EQ(own, twice(picture));
}

// While the first job's kernel rests, the second job's upload has not begun.
TEST_P(HostMemoryTest, DeviceReadsAnInputThatLiesThere) {
  PluginInstance slow = active("rests", GetParam()), filter = doubling();
  GraphDescription made;
  made.inputs = {{"in"}};
  made.outputs = {{"rested"}, {"out"}};
  made.nodes = {{"slow", &slow}, {"filter", &filter}};
  made.edges = {{"in", "slow"}, {"in", "filter"}, {"slow", "rested"}, {"filter", "out"}};
  GraphOptions options;
  options.jobs_in_flight = 2;
  Graph graph(broker, made, test_sizes, options);
  const HostMemory memory = broker.host_memory(sizeof(float[4]));
  float own[4] = {}, out[4] = {}, unused[4] = {};
  const auto doubled_after_a_change = [&](float* in) {
    std::fill_n(in, 4, 1.0F);
    graph.submit({{own}, {unused, unused}}, {});
    const std::uint64_t job = graph.submit({{in}, {unused, out}}, {});
    std::fill_n(in, 4, 5.0F);
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
    return out[0];
  };
  EXPECT_EQ(doubled_after_a_change(samples_in(memory)), 10.0F);
  // The control: submit has read an input in other memory.
  EXPECT_EQ(doubled_after_a_change(own), 2.0F);
}

TEST_P(HostMemoryTest, BufferThatBeginsInABlockMustEndThere) {
  PluginInstance instance = doubling();
  Graph graph(broker, {&instance}, test_sizes);
  std::vector<float> picture = ramp(), own(picture_samples);
  const HostMemory memory = broker.host_memory(picture_bytes);
  const auto refusal = [&](const float* in, float* out) {
    return error_text(ErrorKind::invalid_argument, [&] {
      graph.submit({{in}, {out}}, whole_picture());
    });
  };
  const std::string text =
      "begins at byte 16 of host memory that has " + std::to_string(picture_bytes);
  EXPECT_THAT(refusal(samples_in(memory) + 4, own.data()), HasSubstr(text));
  EXPECT_THAT(refusal(picture.data(), samples_in(memory) + 4), HasSubstr(text));
  // A smaller job has room there.
  EXPECT_EQ(graph.process(picture.data(), samples_in(memory) + picture_samples - 4, {}),
            JobOutcome::done);
  EXPECT_EQ(samples_in(memory)[picture_samples - 1], 6.0F);
  EXPECT_EQ(before_finish(graph, picture.data(), samples_in(memory)), twice(picture));
}

TEST_P(HostMemoryTest, BufferThatBeginsInFrontOfABlockIsOtherMemory) {
  PluginInstance instance = doubling();
  Graph graph(broker, {&instance}, test_sizes);
  std::vector<float> picture = ramp(), own(picture_samples);
  const HostMemory half =
      broker.register_memory(own.data() + picture_samples / 2, picture_bytes / 2);
  ASSERT_TRUE(half.is_registered());
  EXPECT_THAT(before_finish(graph, picture.data(), own.data()), Each(-1.0F));
  EXPECT_EQ(own, twice(picture));
  EXPECT_EQ(graph.process(own.data(), own.data(), whole_picture()), JobOutcome::done);
  EXPECT_EQ(own, twice(twice(picture)));
}

TEST_P(HostMemoryTest, MemoryThatIsGivenUpStaysForTheJobs) {
  PluginInstance instance = doubling();
  GraphOptions options;
  options.jobs_waiting = 2;
  Graph graph(broker, {&instance}, test_sizes, options);
  std::vector<float> picture = ramp(), out(3 * picture_samples);
  std::uint64_t last = 0;
  // One job is in flight, and the others wait.
  for (std::size_t i = 0; i < 3; ++i) {
    HostMemory memory = broker.host_memory(2 * picture_bytes);
    std::copy(picture.begin(), picture.end(), samples_in(memory));
    last =
        graph.submit({{samples_in(memory)}, {out.data() + i * picture_samples}}, whole_picture());
    // An output that nobody can read any more harms nobody, either.
    EXPECT_TRUE(memory.reset());
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_FALSE(memory);
  }
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copy_of(out.data() + i * picture_samples), twice(picture)) << i;
  }
  broker.poll();
  EXPECT_THAT(said("host memory"), ::testing::IsEmpty());
}

TEST_P(HostMemoryTest, HostsMemoryThatAJobUsesIsNotReleased) {
  PluginInstance instance = active("rests", GetParam());
  Graph graph(broker, {&instance}, test_sizes);
  std::vector<float> own(picture_samples);
  HostMemory memory = broker.register_memory(own.data(), picture_bytes);
  std::uint64_t job = graph.submit({{own.data()}, {own.data()}}, {});
  EXPECT_FALSE(memory.reset());
  EXPECT_THAT(said("host memory"), Contains(HasSubstr("was released while a job uses it")));
  EXPECT_EQ(graph.finish(job), JobOutcome::done);
  // Without a job, it is, and can be registered again.
  broker.poll();
  memory = broker.register_memory(own.data() + 4, picture_bytes - 16);
  job = graph.submit({{own.data() + 4}, {own.data() + 4}}, {});
  EXPECT_EQ(graph.finish(job), JobOutcome::done);
  EXPECT_TRUE(memory.reset());
}

TEST_P(HostMemoryTest, LateWorkDoesNotWriteThere) {
  PluginInstance slow = active("rests", GetParam());
  GraphOptions options;
  options.late = LateJobs::drop;
  std::optional<Graph> graph(std::in_place, broker, std::vector{&slow}, test_sizes, options);
  const HostMemory memory = broker.host_memory(picture_bytes);
  std::fill_n(samples_in(memory), 4, -1.0F);
  float in[4] = {1, 2, 3, 4};
  JobInfo job;
  job.deadline_ns = 20'000'000;
  EXPECT_EQ(graph->process(in, samples_in(memory), job), JobOutcome::dropped);
  graph.reset();  // waits for the work
  EXPECT_EQ(samples_in(memory)[0], -1.0F);
}

TEST_P(HostMemoryTest, LossOfALeaseLeavesTheMemoryRegistered) {
  PluginInstance instance = doubling();
  Graph graph(broker, {&instance}, test_sizes);
  const HostMemory memory = broker.host_memory(picture_bytes);
  const std::vector<float> picture = ramp();
  EXPECT_EQ(before_finish(graph, picture.data(), samples_in(memory)), twice(picture));
  ASSERT_TRUE(broker.force_loss(instance.lease().tenant, 0, "a test"));
  EXPECT_TRUE(memory.is_registered());
  EXPECT_EQ(before_finish(graph, picture.data(), samples_in(memory)), twice(picture));
}

TEST_P(HostMemoryTest, BudgetOfAPluginDoesNotCountIt) {
  constexpr std::uint64_t budget = 4 << 20;
  const HostMemory memory = broker.host_memory(2 * budget);
  PluginInstance instance = active("affine", GetParam(), budget);
  Graph graph(broker, {&instance}, test_sizes);
  EXPECT_EQ(
      graph.process(samples_in(memory), samples_in(memory) + picture_samples, whole_picture()),
      JobOutcome::done);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostMemoryTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_F(BrokerTest, HostMemoryThatCannotBeIsRefused) {
  EXPECT_THAT(
      error_text(ErrorKind::invalid_argument, [&] { static_cast<void>(broker.host_memory(0)); }),
      HasSubstr("0 bytes"));
  error_text(ErrorKind::out_of_host_memory,
             [&] { static_cast<void>(broker.host_memory(std::size_t{1} << 50)); });
  std::vector<std::byte> own(8192);
  const auto refusal = [&](void* memory, std::size_t bytes) {
    return error_text(ErrorKind::invalid_argument,
                      [&] { static_cast<void>(broker.register_memory(memory, bytes)); });
  };
  EXPECT_THAT(refusal(nullptr, 1), HasSubstr("null"));
  EXPECT_THAT(refusal(own.data(), 0), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(own.data(), SIZE_MAX), HasSubstr("no address"));
  const HostMemory memory = broker.register_memory(own.data() + 1000, 1000);
  for (const auto& [from, to] : {std::pair{0, 1001}, {1000, 2000}, {1200, 1300}, {1999, 8192}}) {
    EXPECT_THAT(refusal(own.data() + from, static_cast<std::size_t>(to - from)),
                HasSubstr("overlaps"));
  }
  EXPECT_NO_THROW(static_cast<void>(broker.register_memory(own.data() + 4096, 4096)));
}

TEST_F(BrokerTest, HostMemoryIsRegisteredWhenTheFirstGraphIsMade) {
  BrokerOptions fresh = options();
  fresh.ready = {};
  Broker other = Broker::open(std::move(fresh));
  const bool is_in_use = other.shield(0).in_use;  // somebody in the process uses the device
  const HostMemory memory = other.host_memory(picture_bytes);
  EXPECT_EQ(memory.is_registered(), is_in_use);
  PluginInstance instance = other.create(other.load(test_plugin("behaviours")), "affine");
  instance.activate(test_sizes);
  const Graph graph(other, {&instance}, test_sizes);
  EXPECT_TRUE(memory.is_registered());
}

TEST_F(BrokerTest, HostMemoryIsNotRegisteredInARealTimeSession) {
  PluginInstance instance = active("affine");
  Graph graph(broker, {&instance}, test_sizes);
  const HostMemory before = broker.host_memory(picture_bytes);
  EXPECT_TRUE(before.is_registered()) << "the control";
  broker.begin_realtime();
  const HostMemory memory = broker.host_memory(picture_bytes);
  float pixel[4] = {1, 2, 3, 4};
  EXPECT_EQ(graph.process(pixel, samples_in(memory), {}), JobOutcome::done);
  broker.poll();
  EXPECT_FALSE(memory.is_registered());
  EXPECT_NE(samples_in(memory)[3], 0.0F) << "it is copied as other memory";
  broker.end_realtime();
  broker.poll();
  EXPECT_TRUE(memory.is_registered());
}

TEST_F(BrokerTest, HostMemoryNeedsNoDriverAndOutlivesItsBroker) {
  HostMemory memory;
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_FALSE(memory.is_registered());
  EXPECT_TRUE(memory.reset());
  {
    Broker without = Broker::open_without_driver();
    memory = without.host_memory(100);
  }
  EXPECT_FALSE(memory.is_registered());
  samples_in(memory)[24] = 1;
  {
    Broker other = Broker::open(options());
    other.use_device(0);
    memory = other.host_memory(100);
    EXPECT_TRUE(memory.is_registered());
    other.close();
  }
  EXPECT_FALSE(memory.is_registered());
  samples_in(memory)[24] = 1;
}

TEST_F(BrokerTest, MemoryThatTheDriverRefusesIsCopiedAsOtherMemory) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device can be told to fail";
  PluginInstance instance = active("affine");
  Graph graph(broker, {&instance}, test_sizes);
  controls.start_counting();
  ASSERT_EQ(controls.fail_call("cuMemHostRegister_v2", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  const HostMemory memory = broker.host_memory(picture_bytes);
  broker.poll();
  EXPECT_EQ(controls.call_count("cuMemHostRegister_v2"), 1U) << "it is tried once";
  controls.stop_counting();
  EXPECT_FALSE(memory.is_registered());
  EXPECT_THAT(said("host memory"), Contains(HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
  float pixel[4] = {1, 2, 3, 4}, expected[4] = {};
  graph.process(pixel, expected, {});
  graph.process(pixel, samples_in(memory), {});
  EXPECT_EQ(samples_in(memory)[3], expected[3]);
}

// ---- Beside a neighbour's long kernel ----------------------------------------------------------

class HostMemoryChildTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  HostMemoryChildTest() : raw_(broker.driver().path) {
    BrokerOptions impatient = options();
    impatient.end_timeout = std::chrono::milliseconds(400);
    broker = Broker::open(std::move(impatient));
    raw_.init();
    kernel_.emplace([this](const char* symbol) { return raw_.find(symbol); });
    kernel_->let_go_after(std::chrono::seconds(30));
    neighbour_ = broker.open_tenant("neighbour", TenantOptions{LeaseChoice(GetParam())});
  }
  void TearDown() override { kernel_->let_go(); }

  void begin_long_kernel() {
    const CUstream stream = neighbour_->create_stream();
    neighbour_->run(0, [&] {
      const CUfunction hold = kernel_->load();
      kernel_->launch(hold, stream, kernel_->open());
      ASSERT_EQ(raw_.call("cuStreamSynchronize", stream), CUDA_SUCCESS);
      kernel_->launch(hold, stream, kernel_->held());
    });
  }
  void end_long_kernel() { kernel_->let_go(); }
  bool is_kernel_running() const { return kernel_->is_held(); }
  // Returns whether the driver knows the address.
  bool is_known(void* address) {
    unsigned int flags = 0;
    CUresult status = CUDA_SUCCESS;
    neighbour_->run(0, [&] { status = raw_.call("cuMemHostGetFlags", &flags, address); });
    return status == CUDA_SUCCESS;
  }
  template <typename Condition>
  static bool eventually(Condition&& holds) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return holds();
  }

  float pixel_[4] = {0, 1, 2, 3};

 private:
  RawDriver raw_;
  std::optional<HungKernel> kernel_;
  std::optional<Tenant> neighbour_;
};

TEST_P(HostMemoryChildTest, DISABLED_NothingWaitsForTheNeighbour) {
  PluginInstance works = active("plain", GetParam());
  Graph graph(broker, {&works}, test_sizes);
  graph.process(pixel_, pixel_, {});
  HostMemory given_up = broker.host_memory(picture_bytes);
  void* const address = given_up.data();
  begin_long_kernel();
  ASSERT_TRUE(is_known(address));
  const std::uint64_t job = graph.submit({{pixel_}, {samples_in(given_up)}}, {});
  given_up.reset();
  EXPECT_EQ(graph.finish(job), JobOutcome::done);
  const HostMemory next = broker.host_memory(picture_bytes);
  EXPECT_TRUE(next.is_registered());
  for (int i = 0; i < 20; ++i) {
    graph.process(samples_in(next), samples_in(next) + 4, {});
    broker.poll();
  }
  EXPECT_TRUE(is_kernel_running()) << "a job or a poll waited for the neighbour";
  EXPECT_TRUE(is_known(address)) << "the neighbour's kernel runs";
  EXPECT_TRUE(broker.metrics().put_off.empty());
  end_long_kernel();
  EXPECT_TRUE(eventually([&] {
    broker.poll();
    return !is_known(address);
  }));
  EXPECT_TRUE(next.is_registered());
}

// The control: the end of a registration at once waits for the neighbour.
TEST_P(HostMemoryChildTest, DISABLED_ReleaseOfTheHostsMemoryWaitsForTheNeighbour) {
  std::vector<float> own(picture_samples);
  broker.use_device(0);
  HostMemory memory = broker.register_memory(own.data(), picture_bytes);
  ASSERT_TRUE(memory.is_registered());
  begin_long_kernel();
  EXPECT_FALSE(memory.reset()) << "it returned before end_timeout was over";
  EXPECT_TRUE(is_kernel_running());
  const auto put_off = broker.metrics().put_off;
  EXPECT_TRUE(std::any_of(put_off.begin(), put_off.end(), [](const PutOffMetrics& one) {
    return one.what == "registered host memory";
  }));
  end_long_kernel();
  EXPECT_TRUE(eventually([&] { return !is_known(own.data()); })) << "no poll is needed";
}

// Work that hangs may still write into an output.
TEST_P(HostMemoryChildTest, DISABLED_MemoryOfAHungJobStays) {
  BrokerOptions impatient = options();
  impatient.job_timeout = impatient.end_timeout = std::chrono::milliseconds(400);
  Broker hasty = Broker::open(std::move(impatient));
  PluginInstance lingering = hasty.create(hasty.load(test_plugin("behaviours")), "lingers",
                                          {Placement(0), LeaseChoice(GetParam()), 0});
  lingering.activate(test_sizes);
  Graph graph(hasty, {&lingering}, test_sizes);
  HostMemory memory = hasty.host_memory(picture_bytes);
  float* const output = samples_in(memory);
  ASSERT_TRUE(is_known(output)) << "and the neighbour, which asks, has a lease";
  error_text(ErrorKind::context_lost, [&] { graph.process(pixel_, output, {}); });
  memory.reset();
  for (int i = 0; i < 20; ++i) hasty.poll();
  EXPECT_TRUE(is_known(output));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostMemoryChildTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return std::string(to_string(one.param)); });

using HostMemoryChild = std::tuple<const char*, const char*>;
class HostMemoryBesideOthersTest : public ::testing::TestWithParam<HostMemoryChild> {};
TEST_P(HostMemoryBesideOthersTest, ChildTestPasses) {
  const auto& [test, kind] = GetParam();
  const ChildResult child =
      run_child(std::string("Kinds/HostMemoryChildTest.DISABLED_") + test + "/" + kind,
                {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, HostMemoryBesideOthersTest,
    ::testing::Combine(::testing::Values("NothingWaitsForTheNeighbour",
                                         "ReleaseOfTheHostsMemoryWaitsForTheNeighbour",
                                         "MemoryOfAHungJobStays"),
                       ::testing::Values("shared", "green")),
    [](const auto& one) {
      return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param);
    });

}  // namespace
}  // namespace ctxbroker
