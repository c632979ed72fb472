// SPDX-License-Identifier: Apache-2.0
// A call to a worker that is ready allocates nothing, on either side, and a warm job takes no lock.
// The host's thread may be one that plays sound.
#include <algorithm>
#include <vector>

#include "graph_fixture.hpp"
#include "support/allocation_count.hpp"
#include "support/lock_count.hpp"

namespace ctxbroker {
namespace {

TEST_F(WorkerTest, ACallAllocatesNothing) {
  if (!bench::allocations_are_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const auto spin : {std::chrono::microseconds(0), std::chrono::microseconds(50)}) {
    WorkerOptions own = options("own");
    own.module.clear();
    own.program = worker_file("worker_counting_program");
    own.spin = spin;
    const std::uint64_t at_first = bench::allocations_of_this_thread();
    Worker worker(own);
    const std::string message(own.message_bytes, 'x');
    const auto call = [&](std::uint32_t milliseconds) {
      std::uint64_t in_worker = 0;
      worker.call({milliseconds, 0, message.data(), message.size()}, &in_worker, sizeof in_worker);
      return in_worker;
    };
    const std::uint64_t in_worker = call(0);
    EXPECT_GT(bench::allocations_of_this_thread(), at_first);  // the control, also the next one
    EXPECT_GT(in_worker, 0U);
    // In 20 ms, the caller looks several times whether the process lives.
    for (const std::uint32_t milliseconds : {0U, 0U, 0U, 20U, 0U}) {
      const std::uint64_t before = bench::allocations_of_this_thread();
      const std::uint64_t then_in_worker = call(milliseconds);
      const std::uint64_t after = bench::allocations_of_this_thread();
      EXPECT_EQ(after, before) << milliseconds;
      EXPECT_EQ(then_in_worker, in_worker) << milliseconds;
    }
  }
}

// Names of more than 15 characters do not fit into a std::string without an allocation.
class WorkerGraphAllocationTest : public WorkerGraphTest {
 protected:
  static WorkerGraphDescription with_long_names() {
    WorkerGraphDescription made;
    made.inputs = {{"the input with a long name", 2}};
    made.outputs = {{"the output with a long name", 2}};
    const WorkerNode gain = node_of("gain");
    made.nodes = {{"the first node of the two", gain.library},
                  {"the second node of the two", gain.library}};
    made.edges = {{made.inputs[0].name, made.nodes[0].name},
                  {made.nodes[0].name, made.nodes[1].name},
                  {made.nodes[1].name, made.outputs[0].name}};
    return made;
  }
};

TEST_F(WorkerGraphAllocationTest, WarmJobInAWorkerAllocatesNothingAndTakesNoLock) {
  if (!bench::allocations_are_counted() || !bench::locks_are_counted()) {
    GTEST_SKIP() << "a sanitizer owns malloc and mutexes";
  }
  const std::uint64_t at_first = bench::allocations_of_this_thread();
  WorkerGraph graph(with_long_names(), graph_options());
  EXPECT_GT(bench::allocations_of_this_thread(), at_first);  // the control
  const std::uint64_t locks_before = bench::locks_of_this_thread();
  EXPECT_EQ(graph.exits(), 0U);
  EXPECT_EQ(graph.reason(), "");
  EXPECT_GT(bench::locks_of_this_thread(), locks_before) << "the control: the supervisor's lock";
  ActivationSizes sizes{block, channels, 48000};
  sizes.realtime = true;
  graph.activate(sizes);
  const std::vector<float> in = noise(std::size_t{block} * channels, 5);
  std::vector<float> out(in.size());
  JobBuffers buffers{{in.data()}, {out.data()}};
  JobInfo job{block, channels, 0, 48000};
  WorkerJobEvents events;
  events.changes.push_back({0, 0, 0, -1.0});
  const auto lent = graph.lend(in.size() * sizeof(float));
  const JobBuffers lent_buffers{{lent.data()}, {lent.data()}};
  const auto run = [&](const JobBuffers& with) {
    EXPECT_EQ(graph.process(with, job, events), JobOutcome::done);
    job.position += block;
  };
  for (int i = 0; i < 3; ++i) run(buffers), run(lent_buffers);
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = bench::allocations_of_this_thread();
    const std::uint64_t locks_then = bench::locks_of_this_thread();
    run(i % 2 == 0 ? buffers : lent_buffers);
    const std::uint64_t locks = bench::locks_of_this_thread() - locks_then;
    const std::uint64_t after = bench::allocations_of_this_thread();
    EXPECT_EQ(after, before) << i;
    EXPECT_EQ(locks, 0U) << i;
  }
}

// A block that the host has given back is not taken for a lent one any more, and a new one is.
TEST_F(WorkerGraphAllocationTest, JobsFindTheBlocksThatAreLentNow) {
  WorkerGraph graph(with_long_names(), graph_options());
  graph.activate({block, channels, 48000});
  const std::size_t samples = std::size_t{block} * channels;
  const JobInfo job{block, channels, 0, 48000};
  const std::vector<float> in = noise(samples, 5);
  std::vector<float> expected(samples);
  ASSERT_EQ(graph.process({{in.data()}, {expected.data()}}, job), JobOutcome::done);
  for (int i = 0; i < 3; ++i) {
    const WorkerBuffer lent = graph.lend(samples * sizeof(float));
    auto* const values = static_cast<float*>(lent.data());
    std::copy(in.begin(), in.end(), values);
    EXPECT_EQ(graph.process({{values}, {values}}, job), JobOutcome::done);
    EXPECT_EQ(std::vector<float>(values, values + samples), expected) << i;
    // Beyond the end of a lent block, which is a place that only a job knows.
    EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                         [&] {
                           graph.process({{values + 1}, {values}}, job);
                         }),
                ::testing::HasSubstr("of a lent block"));
  }
}

}  // namespace
}  // namespace ctxbroker
