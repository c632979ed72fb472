// SPDX-License-Identifier: Apache-2.0
// Buffers of jobs that lie in memory which the host and the worker share.
#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "ctxbroker/host_memory.hpp"
#include "graph_fixture.hpp"
#include "support/allocation_count.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

// Large beside all else that is lent.
constexpr std::uint32_t edge = 256;
constexpr std::size_t samples = std::size_t{edge} * edge * 4;
constexpr std::size_t bytes = samples * sizeof(float);

JobInfo large_job() {
  JobInfo job;
  job.width = job.height = edge;
  return job;
}

float* floats(const WorkerBuffer& buffer) {
  return static_cast<float*>(buffer.data());
}

// Without alpha, the colours are doubled.
std::vector<float> brighter(const float* in) {
  std::vector<float> result(in, in + samples);
  for (std::size_t i = 0; i < samples; ++i) result[i] *= i % 4 == 3 ? 1 : 2;
  return result;
}

std::vector<float> copy_of(const float* picture) {
  return {picture, picture + samples};
}

class WorkerLendTest : public WorkerGraphTest {
 protected:
  WorkerGraph graph_with(const WorkerGraphOptions& with, const std::string& plugin = "exposure",
                         const std::string& folder = "plugins/") {
    WorkerGraph graph({{{"in"}}, {{"out"}}, {node_of(plugin, folder)}}, with);
    if (plugin == "exposure") graph.set_parameter(0, "stops", 1);
    graph.activate({edge, edge});
    return graph;
  }
  static JobOutcome process(WorkerGraph& graph, const float* in, float* out) {
    return graph.process(in, out, large_job());
  }
  void fill(float* picture) {
    const auto from = noise(samples, ++seed_);
    std::copy(from.begin(), from.end(), picture);
  }

 private:
  unsigned seed_ = 0;
};

TEST_F(WorkerLendTest, LentBuffersAreUsedInPlace) {
  WorkerGraph graph = graph_with(graph_options());
  const WorkerBuffer in = graph.lend(bytes), out = graph.lend(2 * bytes);
  float* const second_half = floats(out) + samples;
  fill(floats(in));
  const auto expected = brighter(floats(in));
  const std::size_t before = lent_bytes();
  EXPECT_EQ(process(graph, floats(in), second_half), JobOutcome::done);
  EXPECT_EQ(copy_of(second_half), expected);
  EXPECT_LT(lent_bytes(), before + bytes);

  // In place.
  std::copy_n(floats(in), samples, floats(out));
  EXPECT_EQ(process(graph, floats(out), floats(out)), JobOutcome::done);
  EXPECT_EQ(copy_of(floats(out)), expected);
  EXPECT_LT(lent_bytes(), before + bytes);

  // Only one of both is lent. The control: the other one is copied, and needs room.
  std::vector<float> own(samples);
  EXPECT_EQ(process(graph, floats(in), own.data()), JobOutcome::done);
  EXPECT_EQ(own, expected);
  EXPECT_GE(lent_bytes(), before + bytes);
  fill(own.data());
  EXPECT_EQ(process(graph, own.data(), floats(out)), JobOutcome::done);
  EXPECT_EQ(copy_of(floats(out)), brighter(own.data()));
}

// The same memory serves graphs in the host's process and in workers.
TEST_F(WorkerLendTest, HostMemoryIsSharedWithTheWorker) {
  Broker broker = Broker::open_without_driver();
  HostMemory memory = broker.host_memory(2 * bytes);
  float* const in = static_cast<float*>(memory.data());
  fill(in);
  const auto expected = brighter(in);
  WorkerGraph graph = graph_with(graph_options());
  // The control: memory that is not lent is copied, and needs room.
  std::vector<float> own(samples);
  const std::size_t before = lent_bytes();
  EXPECT_EQ(process(graph, in, own.data()), JobOutcome::done);
  EXPECT_EQ(own, expected);
  EXPECT_GE(lent_bytes(), before + bytes);

  WorkerGraph second = graph_with(graph_options());
  std::optional<WorkerBuffer> lent(second.lend(memory));
  EXPECT_EQ(lent->data(), memory.data());
  EXPECT_EQ(lent->bytes(), memory.bytes());
  const std::size_t with_both = lent_bytes();
  EXPECT_EQ(process(second, in, in + samples), JobOutcome::done);
  EXPECT_EQ(copy_of(in + samples), expected);
  EXPECT_LT(lent_bytes(), with_both + bytes);
  // Either object keeps it.
  memory.reset();
  EXPECT_EQ(process(second, in, in + samples), JobOutcome::done);
  EXPECT_EQ(copy_of(in + samples), expected);
  memory = broker.host_memory(bytes);
  lent.emplace(second.lend(memory));
  lent.reset();
  std::fill_n(static_cast<float*>(memory.data()), samples, 1.0F);
  EXPECT_EQ(process(second, static_cast<float*>(memory.data()), own.data()), JobOutcome::done);

  std::vector<float> hosts(samples);
  const HostMemory registered = broker.register_memory(hosts.data(), bytes);
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(second.lend(registered)); }),
      HasSubstr("no other process can map it"));
  EXPECT_THAT(
      error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(second.lend(HostMemory())); }),
      HasSubstr("holds nothing"));
}

// The fixture looks whether each record has a name.
TEST_F(WorkerLendTest, MemoryThatCannotBePinnedIsReportedWithANameAndCopied) {
  if (Broker::open().driver().kind != DriverChoice::software) {
    GTEST_SKIP() << "only the software device can be told to fail";
  }
  const auto reported = [&] {
    const auto all = records();
    return std::any_of(all.begin(), all.end(), [](const std::string& record) {
      return record.starts_with("warning host: in worker \"graph\": jobs are copied once more");
    });
  };
  // The first such calls are for buffers of the graph's own, without which there is no graph.
  for (int call = 1; call <= 16 && !reported(); ++call) {
    try {
      WorkerGraph graph = graph_with(
          graph_options({"CTXBROKER_SOFTWARE_FAIL=cuMemHostRegister_v2:" + std::to_string(call) +
                         "=CUDA_ERROR_OUT_OF_MEMORY"}));
      const WorkerBuffer in = graph.lend(bytes), out = graph.lend(bytes);
      fill(floats(in));
      EXPECT_EQ(process(graph, floats(in), floats(out)), JobOutcome::done);
      EXPECT_EQ(copy_of(floats(out)), brighter(floats(in)));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::out_of_host_memory) << error.what();
    }
  }
  EXPECT_TRUE(reported());
}

TEST_F(WorkerLendTest, JobsInFlightUseLentBuffers) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 3;
  WorkerGraph graph = graph_with(with);
  constexpr std::size_t jobs = 7;
  const WorkerBuffer in = graph.lend(jobs * bytes), out = graph.lend(jobs * bytes);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < jobs; ++i) {
    fill(floats(in) + i * samples);
    last = graph.submit({{floats(in) + i * samples}, {floats(out) + i * samples}}, large_job());
  }
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  for (std::size_t i = 0; i < jobs; ++i) {
    EXPECT_EQ(copy_of(floats(out) + i * samples), brighter(floats(in) + i * samples)) << i;
  }
}

// The host may write into an input when submit has returned. The work that reads it may be behind
// that of other jobs.
TEST_F(WorkerLendTest, AnInputIsReadBeforeSubmitReturns) {
  constexpr std::size_t jobs = 8;
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = jobs;
  WorkerGraph graph = graph_with(with);
  const WorkerBuffer block = graph.lend(2 * jobs * bytes);
  const auto input = [&](std::size_t job) { return floats(block) + 2 * job * samples; };
  std::vector<std::vector<float>> expected;
  std::uint64_t last = 0;
  for (std::size_t job = 0; job < jobs; ++job) {
    fill(input(job));
    expected.push_back(brighter(input(job)));
  }
  for (std::size_t job = 0; job < jobs; ++job) {
    last = graph.submit({{input(job)}, {input(job) + samples}}, large_job());
    std::fill_n(input(job), samples, -1.0F);
  }
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  for (std::size_t job = 0; job < jobs; ++job) {
    EXPECT_EQ(copy_of(input(job) + samples), expected[job]) << job;
  }
}

// CUDA copies from large blocks by itself, and to them.
TEST_F(WorkerLendTest, LargeBlocksArePinned) {
  WorkerGraph graph = graph_with(graph_options());
  const auto things = [&] { return graph.metrics().tenants.at(1).leases.at(0).allocations; };
  const auto before = things();
  std::vector<float> own(samples);
  process(graph, own.data(), own.data());
  EXPECT_EQ(things(), before + 1) << "the job's own block";
  {
    const WorkerBuffer large = graph.lend(2 * bytes);
    process(graph, floats(large), floats(large) + samples);
    EXPECT_EQ(things(), before + 2);
    graph.finish(graph.submit({{floats(large)}, {own.data()}}, large_job()));
  }
  EXPECT_EQ(things(), before + 1);
  graph.activate({edge, edge});
  EXPECT_EQ(things(), before);
}

// An output is written when its job is finished, as with a graph in this process.
TEST_F(WorkerLendTest, JobsInFlightMayShareAnOutput) {
  WorkerGraphOptions with = graph_options();
  with.graph.jobs_in_flight = 2;
  WorkerGraph graph = graph_with(with);
  const WorkerBuffer block = graph.lend(3 * bytes);
  float* const out = floats(block) + 2 * samples;
  std::vector<std::vector<float>> expected;
  for (const std::size_t job : {0, 1}) {
    fill(floats(block) + job * samples);
    expected.push_back(brighter(floats(block) + job * samples));
  }
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t first = graph.submit({{floats(block)}, {out}}, large_job());
    const std::uint64_t second = graph.submit({{floats(block) + samples}, {out}}, large_job());
    EXPECT_EQ(graph.finish(first), JobOutcome::done);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other one may be done
    EXPECT_EQ(copy_of(out), expected[0]);
    EXPECT_EQ(graph.finish(second), JobOutcome::done);
    EXPECT_EQ(copy_of(out), expected[1]);
  }
}

// The first plug-in makes that output, and the last one reads the input.
TEST_F(WorkerLendTest, AnOutputMayLieInAnInputThatIsReadLate) {
  constexpr int between = 30;
  WorkerGraphDescription description{{{"a"}, {"b"}},
                                     {{"first"}, {"out"}},
                                     {node_of("exposure"), node_of("merge")},
                                     {{"a", "exposure"}, {"exposure", "first"}, {"b", "merge.a"}}};
  std::string from = "exposure";
  for (int i = 0; i < between; ++i) {
    WorkerNode node = node_of("exposure");
    node.name += std::to_string(i);
    description.nodes.push_back(node);
    description.edges.push_back({from, node.name});
    from = node.name;
  }
  description.edges.insert(description.edges.end(), {{from, "merge.b"}, {"merge", "out"}});
  WorkerGraph graph(description, graph_options());
  graph.activate({width, height});
  constexpr std::size_t small = std::size_t{width} * height * 4;
  const WorkerBuffer block = graph.lend(bytes);  // large, so that it is pinned
  float* const a = floats(block);
  float* const b = a + small;
  float* const out = b + small;
  const auto run = [&](float* first) {
    const auto pixels = noise(2 * small, 3);
    std::copy(pixels.begin(), pixels.end(), a);
    graph.process({{a, b}, {first, out}}, picture_job());
    return std::vector<float>(out, out + small);
  };
  std::vector<float> first(small);
  const std::vector<float> expected = run(first.data());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(run(b), expected);
    EXPECT_EQ(std::vector<float>(b, b + small), first);
  }
}

// The next process has the same memory, also when it was there before.
TEST_F(WorkerLendTest, LentBlocksOutliveTheirProcess) {
  for (const bool stand_by : {false, true}) {
    WorkerGraphOptions with = graph_options();
    with.stand_by = stand_by;
    WorkerGraph graph = graph_with(with);
    const WorkerBuffer in = graph.lend(bytes), out = graph.lend(bytes);
    const std::size_t before = lent_bytes();
    for (std::size_t round = 1; round < 4; ++round) {
      kill(graph.process_id(), SIGKILL);
      wait_for_end((stand_by ? 3 : 0) + round);
      fill(floats(in));
      EXPECT_EQ(process(graph, floats(in), floats(out)), JobOutcome::done);
      EXPECT_EQ(copy_of(floats(out)), brighter(floats(in)));
      EXPECT_LT(lent_bytes(), before + bytes) << "it copies";
    }
  }
}

// A block may end before the graph, and after it.
TEST_F(WorkerLendTest, LentBlocksEndAtAnyTime) {
  WorkerBuffer last;
  {
    WorkerGraph graph = graph_with(graph_options());
    const std::size_t before = lent_bytes();
    for (int i = 0; i < 5; ++i) {
      const WorkerBuffer block = graph.lend(bytes);
      fill(floats(block));
      const auto expected = brighter(floats(block));
      EXPECT_EQ(process(graph, floats(block), floats(block)), JobOutcome::done);
      EXPECT_EQ(copy_of(floats(block)), expected);
    }
    EXPECT_LT(lent_bytes(), before + bytes);
    last = graph.lend(bytes);
  }
  fill(floats(last));
}

// The worker writes into it all the same, so the next block must not lie where it was.
TEST_F(WorkerLendTest, ABlockThatEndsBeforeItsJobIsKeptInTheWorker) {
  WorkerGraph graph = graph_with(graph_options());
  const std::vector<float> own(samples, 0.25F);
  for (int round = 0; round < 20; ++round) {
    std::uint64_t job = 0;
    {
      const WorkerBuffer out = graph.lend(bytes);
      job = graph.submit({{own.data()}, {out.data()}}, large_job());
    }
    const WorkerBuffer next = graph.lend(bytes);
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
    EXPECT_EQ(copy_of(floats(next)), std::vector<float>(samples));
  }
  EXPECT_EQ(graph.exits(), 0U);
  EXPECT_LT(lent_bytes(), 4 * bytes);
}

TEST_F(WorkerLendTest, ABufferThatReachesBeyondItsBlockIsRefused) {
  WorkerGraph graph = graph_with(graph_options());
  const WorkerBuffer block = graph.lend(bytes);
  std::vector<float> own(samples);
  for (const bool is_input : {true, false}) {
    EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                         [&] {
                           process(graph, is_input ? floats(block) + 1 : own.data(),
                                   is_input ? own.data() : floats(block) + 1);
                         }),
                HasSubstr("a buffer of " + std::to_string(bytes) +
                          " bytes begins at byte 4 of a "
                          "lent block that has " +
                          std::to_string(bytes)));
  }
  EXPECT_EQ(process(graph, floats(block), own.data()), JobOutcome::done);
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(graph.lend(0)); });
}

// A dead process may have written there.
TEST_F(WorkerLendTest, AJobWithALentInputIsNotDoneOnceMore) {
  WorkerGraphOptions with = graph_options({"CTXB_TEST_CRASH=process:segv"});
  with.retry = true;
  WorkerGraph graph = graph_with(with, "crashes", "test_plugins/");
  const WorkerBuffer block = graph.lend(bytes);
  std::vector<float> own(samples);
  error_of(ErrorKind::context_lost, [&] { process(graph, floats(block), own.data()); });
  EXPECT_EQ(graph.exits(), 1U);
  // The control.
  error_of(ErrorKind::context_lost, [&] { process(graph, own.data(), floats(block)); });
  EXPECT_EQ(graph.exits(), 3U);
}

// The host's thread may be one that plays sound.
TEST_F(WorkerLendTest, LentBlockAllocatesNothing) {
  if (!bench::allocations_are_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  const WorkerGraphDescription two{{{"in"}}, {{"out"}}, {node_of("gain"), node_of("gain")}};
  for (const bool is_dry : {false, true}) {
    for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
      WorkerGraphOptions with = graph_options();
      with.dry_while_away = is_dry;
      with.grouping = grouping;
      WorkerGraph graph(two, with);
      graph.activate({block, channels, 48000, true});
      const WorkerBuffer lent = graph.lend(block * channels * sizeof(float));
      std::vector<float> own(std::size_t{block} * channels);
      const JobBuffers copied{{own.data()}, {own.data()}}, shared{{lent.data()}, {lent.data()}};
      WorkerJobEvents events;
      events.changes = {{0, 0, 3, 0.5, 16, 1}, {1, 0, 5, 0.25}};
      events.transport.emplace();
      JobInfo job;
      job.width = block;
      job.height = channels;
      job.sample_rate = 48000;
      const auto run = [&] {
        graph.process(copied, job, events);
        graph.process(shared, job, events);
        graph.process(own.data(), own.data(), job, events);
        graph.finish(graph.submit(copied, job, events));
      };
      run();
      const std::uint64_t before = bench::allocations_of_this_thread();
      for (int i = 0; i < 10; ++i) run();
      EXPECT_EQ(bench::allocations_of_this_thread(), before) << is_dry << to_string(grouping);
    }
  }
}

}  // namespace
}  // namespace ctxbroker
