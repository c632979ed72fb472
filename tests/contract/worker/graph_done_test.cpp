// SPDX-License-Identifier: Apache-2.0
// The host is told when a job in a worker is done: GraphOptions::on_done.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "groups_fixture.hpp"
#include "support/left.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double endless = 5;  // what the kernel of "hostile" does

class WorkerDoneTest : public WorkerGroupsTest {
 protected:
  WorkerGraphOptions telling(WorkerGraphOptions made) {
    made.graph.on_done = [this](std::uint64_t job) {
      const std::lock_guard lock(mutex_);
      told_.push_back(job);
      changed_.notify_all();
    };
    made.worker.crash_limit = 0;
    return made;
  }
  std::vector<std::uint64_t> told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  // Makes no call of the graph.
  bool wait_until_told(std::uint64_t job) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      return std::find(told_.begin(), told_.end(), job) != told_.end();
    });
  }
  std::uint64_t submit(WorkerGraph& graph) {
    return graph.submit({{input_.data()}, {output_.data()}}, picture_job());
  }
  JobOutcome process(WorkerGraph& graph) {
    return graph.process(input_.data(), output_.data(), picture_job());
  }
  // Its job in flight does not end.
  std::uint64_t submit_endless(WorkerGraph& graph, std::size_t node) {
    graph.set_parameter(node, "kernel", endless);
    const std::uint64_t job = submit(graph);
    graph.set_parameter(node, "kernel", 0);
    return job;
  }
  void kill_process(const WorkerGraph& graph, std::size_t node = 0) {
    const std::size_t ended = ends().size();
    kill(graph.process_id(node), SIGKILL);
    wait_for_end(ended + 1);
  }
  // A worker that answers every message itself.
  WorkerGraph liar(const std::vector<std::string>& environment, double sample_rate = 0) {
    WorkerGraphOptions with = telling(graph_options(environment));
    with.worker.program = worker_file("worker_graph_liar");
    with.graph.jobs_in_flight = 2;
    WorkerGraph graph({{{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so"), "liar"}}},
                      with);
    graph.activate({8, 8, sample_rate});
    return graph;
  }
  static WorkerGraphDescription hostile() {
    return {{{"in"}}, {{"out"}}, {node_of("hostile", "test_plugins/")}};
  }

  std::vector<float> pixels = noise(8 * 8 * 4, 3);
  const JobBuffers small{{pixels.data()}, {pixels.data()}};
  const JobInfo small_job{8, 8};

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::uint64_t> told_;
  std::vector<float> input_ = noise(std::size_t{width} * height * 4, 5), output_ = input_;
};

TEST_F(WorkerDoneTest, TheHostIsToldOfEachJobOnce) {
  WorkerGraphOptions with = telling(graph_options());
  with.graph.jobs_in_flight = 3;
  {
    WorkerGraph graph(row({"exposure"}), with);
    graph.activate({width, height});
    for (std::uint64_t job = 1; job <= 150; ++job) EXPECT_EQ(submit(graph), job);
    EXPECT_TRUE(wait_until_told(150));
    EXPECT_TRUE(graph.is_done(150));
    EXPECT_EQ(graph.finish(150), JobOutcome::done);
    EXPECT_EQ(process(graph), JobOutcome::done);  // job 151
    graph.activate({width, height});              // the jobs of the process begin with 1 again
    EXPECT_THAT(told(), SizeIs(151));
    EXPECT_EQ(submit(graph), 152U);
    EXPECT_TRUE(wait_until_told(152));
  }
  auto all = told();
  std::sort(all.begin(), all.end());
  EXPECT_THAT(all, SizeIs(152));
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

// GraphOptions::on_done is not called for a lost job. WorkerOptions::on_exit reports the exit that
// lost it.
TEST_F(WorkerDoneTest, NobodyIsToldOfAJobThatIsLost) {
  for (const bool stand_by : {false, true}) {
    const std::size_t before = told().size();
    WorkerGraphOptions with = telling(graph_options());
    with.stand_by = stand_by;
    with.stand_by_memory = stand_by ? std::uint64_t{1} << 30 : 0;
    WorkerGraph graph(hostile(), with);
    graph.activate({width, height});
    const std::uint64_t lost = submit_endless(graph, 0);
    kill_process(graph);
    error_of(ErrorKind::context_lost, [&] { graph.finish(lost); });
    EXPECT_THAT(told(), SizeIs(before));
    const std::uint64_t next = submit(graph);
    EXPECT_EQ(next, lost + 1);
    EXPECT_TRUE(wait_until_told(next));
    EXPECT_EQ(graph.finish(next), JobOutcome::done);
    EXPECT_THAT(told(), SizeIs(before + 1));
  }
}

// The host is told at the end of the process, before it calls the graph again.
TEST_F(WorkerDoneTest, TheHostIsToldOfJobsThatBecomeDry) {
  WorkerGraphOptions with = telling(graph_options());
  with.dry_while_away = true;
  WorkerGraph graph({{{"in"}}, {{"out"}}, {node_of("hostile_sound", "test_plugins/")}}, with);
  graph.activate({block, channels, 48000});
  const JobInfo job{block, channels, 0, 48000};
  std::vector<float> samples(std::size_t{block} * channels);
  const JobBuffers buffers{{samples.data()}, {samples.data()}};
  graph.set_parameter(0, "faults", 1);  // so the job does not become done
  EXPECT_EQ(graph.submit(buffers, job), 1U);
  kill(graph.process_id(), SIGKILL);
  EXPECT_TRUE(wait_until_told(1));
  EXPECT_EQ(graph.finish(1), JobOutcome::dry);
  EXPECT_EQ(graph.process(buffers, job), JobOutcome::dry);
  EXPECT_THAT(told(), ElementsAre(1, 2));
  graph.set_parameter(0, "faults", 0);
  while (graph.process(buffers, job) == JobOutcome::dry) std::this_thread::yield();
  const std::uint64_t last = graph.submit(buffers, job);
  EXPECT_TRUE(wait_until_told(last));
  EXPECT_EQ(graph.finish(last), JobOutcome::done);
  EXPECT_THAT(told(), SizeIs(last));
}

TEST_F(WorkerDoneTest, TheHostIsToldOfPicturesThatBecomeDry) {
  WorkerGraphOptions with = telling(graph_options());
  with.dry_while_away = true;
  WorkerGraph graph(row({"exposure"}), with);
  graph.activate({width, height});
  kill_process(graph);
  EXPECT_EQ(submit(graph), 1U);
  EXPECT_THAT(told(), ElementsAre(1));
  EXPECT_EQ(graph.finish(1), JobOutcome::dry);
}

// The host does not read what the worker sends, so at last the worker can send it nothing more.
TEST_F(WorkerDoneTest, TheHostIsToldAlsoIfTheWorkerCannotRing) {
  std::mutex slow;
  std::atomic<std::uint64_t> lines{0};
  constexpr std::uint64_t jobs = 2000;
  {
    WorkerGraphOptions with = telling(graph_options());
    with.graph.jobs_in_flight = 2;
    with.worker.records = [&](const Record& record) {
      if (record.text.find("hello from process") == std::string::npos) return;
      ++lines;
      const std::lock_guard lock(slow);
    };
    WorkerGraph graph(
        {{{"in"}}, {{"out"}}, {{"asks", built("test_plugins/behaviours.so"), "asks"}}}, with);
    graph.activate({width, height});
    std::unique_lock held(slow);
    for (std::uint64_t job = 1; job <= jobs; ++job) EXPECT_EQ(submit(graph), job);
    while (!graph.is_done(jobs)) std::this_thread::yield();
    held.unlock();
    EXPECT_TRUE(wait_until_told(jobs));
    EXPECT_THAT(told(), SizeIs(jobs));
  }
  EXPECT_LT(lines, jobs) << "all records have come, so the worker could always ring";
}

// It says that all jobs are done that there can be, or says nothing. Either way, the host is told
// of its own jobs, once.
TEST_F(WorkerDoneTest, LyingWorkerAddsNoDoneJobAndHidesNone) {
  for (const std::string lie : {"done_board", "none"}) {
    const std::size_t before = told().size();
    WorkerGraph graph = liar({"TEST_GRAPH_LIE=" + lie});
    std::vector<std::uint64_t> submitted;
    for (int i = 0; i < 300; ++i) submitted.push_back(graph.submit(small, small_job));
    graph.finish(submitted.back());
    const auto all = told();
    EXPECT_EQ(std::vector(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()), submitted)
        << lie;
  }
}

// Each call sets the process up anew.
TEST_F(WorkerDoneTest, FailedSetUpsLeaveNothing) {
  const auto mark = folder() / "mark";
  WorkerGraph graph =
      liar({"TEST_GRAPH_LIE=later_inputs", "TEST_GRAPH_MARK=" + mark.string()}, 48000);
  const JobInfo sound{8, 8, 0, 48000};
  EXPECT_EQ(graph.process(small, sound), JobOutcome::done);
  std::ofstream(mark).put('x');
  kill_process(graph);
  const auto fails = [&] { static_cast<void>(graph.process(small, sound)); };
  error_of(ErrorKind::wrong_state, fails);
  // A thread of the last set-up may be at its very end.
  const auto settled = [] {
    for (Left last = left();;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Left now = left();
      if (now == last) return now;
      last = now;
    }
  };
  const Left once = settled();
  for (int i = 0; i < 50; ++i) error_of(ErrorKind::wrong_state, fails);
  EXPECT_EQ(settled(), once);
}

// The host does not wait, and the work goes on.
TEST_F(WorkerDoneTest, TheHostIsToldOfALateJobWhenItsWorkHasEnded) {
  WorkerGraphOptions with = telling(graph_options());
  with.graph.late = LateJobs::drop;
  WorkerGraph graph(row({"exposure"}), with);
  graph.activate({width, height});
  JobInfo job = picture_job();
  job.deadline_ns = 1;
  std::vector<float> pixels(std::size_t{width} * height * 4);
  const JobOutcome outcome = graph.process({{pixels.data()}, {pixels.data()}}, job);
  EXPECT_TRUE(outcome == JobOutcome::dropped || outcome == JobOutcome::done);
  EXPECT_TRUE(wait_until_told(1));
  EXPECT_EQ(process(graph), JobOutcome::done);
  EXPECT_TRUE(wait_until_told(2));
  EXPECT_THAT(told(), ElementsAre(1, 2));
}

// Only the last process tells. The host's own numbers its jobs anew at each activation.
TEST_F(WorkerDoneTest, OnlyTheLastProcessTellsOfDoneJobs) {
  Broker broker = Broker::open();
  for (const bool in_host : {false, true}) {
    const std::size_t before = told().size();
    WorkerGraphOptions with = telling(grouped(WorkerGrouping::each_instance));
    with.broker = &broker;
    WorkerGraphDescription description = row({"exposure", "vignette"});
    if (in_host) description.nodes[1].grouping = WorkerGrouping::in_host;
    WorkerGraph graph(description, with);
    for (std::uint64_t job = 1; job <= 5; job += 2) {
      graph.activate({width, height});
      EXPECT_EQ(submit(graph), job);
      EXPECT_TRUE(wait_until_told(job));
      EXPECT_EQ(graph.finish(job), JobOutcome::done);
      EXPECT_EQ(process(graph), JobOutcome::done);
      EXPECT_TRUE(wait_until_told(job + 1));
    }
    const auto all = told();
    EXPECT_THAT(std::vector(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()),
                ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

// A graph that moves tells of its jobs as before.
TEST_F(WorkerDoneTest, MovedGraphGoesOnTellingOfDoneJobs) {
  InProcess here(row({"exposure"}));
  here.activate({width, height}, telling(graph_options()).graph);
  WorkerGraph there = WorkerGraph::from(std::move(*here.graph), graph_options());
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_EQ(submit(there), 1U);
  EXPECT_TRUE(wait_until_told(1));
  here.graph.reset();
}

}  // namespace
}  // namespace ctxbroker
