// SPDX-License-Identifier: Apache-2.0
// Sound that goes on while a process of the graph is away: WorkerGraphOptions::dry_while_away.
#include <atomic>
#include <csignal>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>

#include "groups_fixture.hpp"
#include "support/left.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::size_t all_samples = std::size_t{block} * channels;

class WorkerDryTest : public WorkerGroupsTest {
 protected:
  using Block = std::vector<float>;
  static constexpr ActivationSizes sizes{block, channels, 48000};

  WorkerGraphOptions dry(WorkerGrouping grouping = WorkerGrouping::together) {
    WorkerGraphOptions made = grouped(grouping);
    made.dry_while_away = true;
    made.worker.crash_limit = 0;
    return made;
  }
  static WorkerGraph active(const WorkerGraphDescription& description,
                            const WorkerGraphOptions& options) {
    WorkerGraph graph(description, options);
    graph.activate(sizes);
    return graph;
  }
  static Block block_of(unsigned number) { return noise(all_samples, number + 1); }

  // The next block of the sound. The first one is number 0.
  struct Next {
    unsigned number;
    Block in, out;
    JobOutcome outcome;
  };
  Next next(WorkerGraph& graph) {
    Next made{number_++, {}, Block(all_samples, -1), JobOutcome::forgotten};
    made.in = block_of(made.number);
    made.outcome = graph.process({{made.in.data()}, {made.out.data()}}, job(made.number));
    return made;
  }
  static JobInfo job(unsigned number) {
    JobInfo made{block, channels, std::int64_t{number} * block, 48000};
    made.discontinuity = number == 0;
    return made;
  }
  // Kills the process of a node, and returns when the graph knows it.
  void end_process(WorkerGraph& graph, std::size_t node = 0) {
    const std::size_t ended = ends().size();
    kill(graph.process_id(node), SIGKILL);
    wait_for_end(ended + 1);
  }
  // Until a block is done again, which it returns; calls `each` with those before.
  template <typename Each>
  Next until_done(WorkerGraph& graph, const Each& each) {
    for (int i = 0; i < 6000; ++i) {
      Next one = next(graph);
      if (one.outcome == JobOutcome::done) return one;
      EXPECT_EQ(one.outcome, JobOutcome::dry);
      each(one);
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << "it did not come back: " << graph.reason();
    return next(graph);
  }

 private:
  unsigned number_ = 0;
};

// A plug-in in this process, which computes the blocks that a test expects.
class Reference {
 public:
  explicit Reference(const std::string& plugin, const std::string& id = {}, double value = 0)
      : graph_(row({plugin})) {
    if (!id.empty()) set(id, value);
    graph_.activate({block, channels, 48000});
  }
  void set(const std::string& id, double value) { graph_.instances[0].set_parameter(id, value); }
  std::vector<float> operator()(const std::vector<float>& in, bool is_new = false) {
    std::vector<float> out(in.size());
    JobInfo job{block, channels, 0, 48000};
    job.discontinuity = is_new;
    graph_.graph->process({{in.data()}, {out.data()}}, job);
    return out;
  }

 private:
  InProcess graph_;
};

TEST_F(WorkerDryTest, BlocksAreDryUntilTheNextProcessIsThere) {
  WorkerGraph graph = active(row({"gain"}), dry());
  graph.set_parameter(0, "gain_db", -6);
  Reference gain("gain", "gain_db", -6);
  const Next first = next(graph);
  EXPECT_EQ(first.outcome, JobOutcome::done);
  EXPECT_EQ(first.out, gain(first.in));

  end_process(graph);
  const Next lost = next(graph);  // it does not wait for the start of a process
  EXPECT_EQ(lost.outcome, JobOutcome::dry);
  EXPECT_EQ(lost.out, lost.in);
  graph.set_parameter(0, "gain_db", -12);
  gain.set("gain_db", -12);
  const Next back = until_done(graph, [](const Next& one) { EXPECT_EQ(one.out, one.in); });
  EXPECT_EQ(back.out, gain(back.in));
  EXPECT_EQ(graph.exits(), 1U);
  EXPECT_EQ(graph.state(), WorkerState::ready);
  EXPECT_THAT(records(), Contains(HasSubstr("ran without its plug-ins meanwhile")));
}

// The positive control.
TEST_F(WorkerDryTest, BlockWithoutTheDryOptionFailsAndTheNextOneWaits) {
  WorkerGraphOptions with = dry();
  with.dry_while_away = false;
  WorkerGraph graph = active(row({"gain"}), with);
  kill(graph.process_id(), SIGSTOP);
  error_of(ErrorKind::context_lost, [&] { next(graph); });
  EXPECT_EQ(next(graph).outcome, JobOutcome::done);
}

TEST_F(WorkerDryTest, ABlockThatIsInTheProcessIsDry) {
  WorkerGraph graph = active(row({"gain"}), dry());
  next(graph);
  kill(graph.process_id(), SIGSTOP);  // so that it cannot answer
  const Next lost = next(graph);
  EXPECT_EQ(lost.outcome, JobOutcome::dry);
  EXPECT_EQ(lost.out, lost.in);
  // In place, the output is the input's memory.
  Block both = block_of(7);
  EXPECT_EQ(graph.process({{both.data()}, {both.data()}}, job(7)), JobOutcome::dry);
  EXPECT_EQ(both, block_of(7));
}

// The dry signal is as late as the plug-in's own sound. The delay stays the same when the plug-in
// is lost and when it is back.
TEST_F(WorkerDryTest, DrySignalIsDelayedByThePluginsLatency) {
  WorkerGraphDescription description = row({"fir"});
  WorkerGraph graph(description, dry());
  graph.set_parameter(0, "taps", 401);
  graph.activate(sizes);
  const std::uint64_t latency = graph.latency_frames();
  ASSERT_GT(latency, 0U);
  ASSERT_LT(latency, block);
  const auto expect_delayed = [&](const Next& one) {
    const Block before = one.number == 0 ? Block(all_samples) : block_of(one.number - 1);
    Block expected(all_samples);
    for (std::size_t i = 0; i < all_samples; ++i) {
      const std::size_t frame = i % block, channel = i / block * block;
      expected[i] = frame < latency ? before[channel + block - latency + frame]
                                    : one.in[channel + frame - latency];
    }
    EXPECT_EQ(one.out, expected) << one.number;
  };
  next(graph);
  for (int times = 0; times < 2; ++times) {
    end_process(graph);
    const Next lost = next(graph);
    EXPECT_EQ(lost.outcome, JobOutcome::dry);
    expect_delayed(lost);
    until_done(graph, expect_delayed);
  }
}

// The process that is away is left out, and the plug-in behind it notices no gap.
TEST_F(WorkerDryTest, ProcessesBehindADryOneNoticeNoGap) {
  WorkerGraph graph(row({"gain", "delay"}), dry(WorkerGrouping::each_instance));
  graph.set_parameter(0, "gain_db", -6);
  graph.set_parameter(1, "time_ms", 10);
  graph.activate(sizes);
  Reference gain("gain", "gain_db", -6), echo("delay", "time_ms", 10);
  const auto expect_right = [&](const Next& one) {
    const bool is_dry = one.outcome == JobOutcome::dry;
    EXPECT_EQ(one.out, echo(is_dry ? one.in : gain(one.in))) << one.number;
  };
  const int other = graph.process_id(1);
  for (int i = 0; i < 4; ++i) expect_right(next(graph));
  for (int times = 0; times < 3; ++times) {
    end_process(graph, 0);
    const Next lost = next(graph);
    EXPECT_EQ(lost.outcome, JobOutcome::dry);
    expect_right(lost);
    expect_right(until_done(graph, expect_right));
    expect_right(next(graph));
  }
  EXPECT_EQ(graph.process_id(1), other);
  EXPECT_EQ(graph.exits(1), 0U);
}

TEST_F(WorkerDryTest, BlocksInFlightAreDry) {
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    WorkerGraphOptions with = dry(grouping);
    with.graph.jobs_in_flight = 3;
    WorkerGraph graph = active(row({"gain", "delay"}), with);
    std::deque<Block> in, out;
    std::vector<std::uint64_t> jobs;
    const auto submit = [&] {
      const auto number = static_cast<unsigned>(in.size());
      in.push_back(block_of(number));
      out.emplace_back(all_samples, -1.0F);
      jobs.push_back(graph.submit({{in.back().data()}, {out.back().data()}}, job(number)));
    };
    for (int i = 0; i < 3; ++i) submit();
    end_process(graph, 1);
    submit();
    submit();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(graph.finish(jobs[i]), JobOutcome::dry) << i;
      EXPECT_TRUE(graph.is_done(jobs[i]));
      if (grouping == WorkerGrouping::together) {
        EXPECT_EQ(out[i], in[i]) << i;
      }
    }
  }
}

// Only the first process is away, so the last one has done the job.
TEST_F(WorkerDryTest, AJobIsDryIfAnyProcessWasAway) {
  WorkerGraph graph = active(row({"gain", "delay"}), dry(WorkerGrouping::each_instance));
  end_process(graph, 0);
  Block in = block_of(0), out(all_samples);
  const std::uint64_t lost = graph.submit({{in.data()}, {out.data()}}, job(0));
  EXPECT_EQ(graph.finish(lost), JobOutcome::dry);
  EXPECT_EQ(graph.finish(lost), JobOutcome::dry);  // asked again
  EXPECT_EQ(out, Reference("delay")(in));
}

TEST_F(WorkerDryTest, AutomationGoesOnWhileTheProcessIsAway) {
  WorkerGraph graph = active(row({"gain"}), dry());
  end_process(graph);
  Block in = block_of(0), out(all_samples);
  WorkerJobEvents events;
  events.changes = {{0, 0, 5, -20}};
  EXPECT_EQ(graph.process({{in.data()}, {out.data()}}, job(0), events), JobOutcome::dry);
  EXPECT_EQ(graph.parameter_value(0, "gain_db"), ParameterValue(-20));
  Reference gain("gain", "gain_db", -20);
  const Next back = until_done(graph, [](const Next&) {});
  EXPECT_EQ(back.out, gain(back.in));
}

// It is refused as with a process, and the plug-ins come back.
TEST_F(WorkerDryTest, ABadJobIsRefusedWhileTheProcessIsAway) {
  WorkerGraph graph(row({"fir"}), dry());
  graph.set_parameter(0, "taps", 401);
  graph.activate(sizes);
  const std::uint64_t latency = graph.latency_frames();
  std::vector<std::pair<JobInfo, WorkerJobEvents>> bad(6, {job(1), {}});
  bad[0].second.changes = {{0, 0, 5, 1e9}};
  bad[1].second.changes = {{0, 0, block + 1, 0}};
  bad[2].second.changes = {{0, 99, 5, 0}};
  bad[3].second.changes = {{1, 0, 5, 0}};
  bad[4].first.sample_rate = 44100;
  bad[5].first.width = 0;
  Block in = block_of(9), out(all_samples);
  const auto refusals = [&] {
    std::vector<std::string> texts;
    for (const auto& [info, events] : bad) {
      try {
        graph.process({{in.data()}, {out.data()}}, info, events);
        texts.emplace_back("taken");
      } catch (const Error& error) {
        texts.emplace_back(error.what());
      }
    }
    return texts;
  };
  const auto texts = refusals();
  EXPECT_THAT(texts, Not(Contains("taken")));
  const Block before = next(graph).in;
  end_process(graph);
  EXPECT_EQ(refusals(), texts);
  // None of these blocks is in the delayed sound.
  const Next one = next(graph);
  EXPECT_EQ(one.outcome, JobOutcome::dry);
  for (std::size_t frame = 0; frame < latency; ++frame) {
    ASSERT_EQ(one.out[frame], before[block - latency + frame]) << frame;
  }
  until_done(graph, [](const Next&) {});
}

// A process that ends before a job has taken it over counts as an end.
TEST_F(WorkerDryTest, TheNextProcessMayEndBeforeItsFirstJob) {
  WorkerGraphOptions with = dry();
  with.worker.crash_limit = 3;
  WorkerGraph graph = active(row({"gain"}), with);
  end_process(graph);
  EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
  std::this_thread::sleep_for(milliseconds(sanitized ? 6000 : 1500));  // it is ready
  ASSERT_THAT(children(), SizeIs(1));
  kill(children()[0], SIGKILL);
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
  EXPECT_EQ(graph.exits(), 2U);
  EXPECT_EQ(graph.state(), WorkerState::missing);
  until_done(graph, [](const Next&) {});
  end_process(graph);
  EXPECT_EQ(graph.state(), WorkerState::quarantined);
}

// The next process lies about what the plug-ins are. The graph stays away, and each later process
// that lies costs a pardon.
TEST_F(WorkerDryTest, ANextProcessThatLiesIsRefused) {
  const auto mark = folder() / "mark";
  for (const char* lie : {"later_latency", "later_inputs"}) {
    WorkerGraphOptions with = dry();
    with.worker.program = worker_file("worker_graph_liar");
    with.worker.environment.push_back(std::string("TEST_GRAPH_LIE=") + lie);
    with.worker.environment.push_back("TEST_GRAPH_MARK=" + mark.string());
    WorkerGraph graph =
        active({{{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so"), "liar"}}}, with);
    EXPECT_EQ(next(graph).outcome, JobOutcome::done) << lie;
    std::ofstream(mark).put('x');
    for (int times = 0; times < 2; ++times) {
      if (times == 0) {
        end_process(graph);
      } else {
        graph.pardon();
      }
      for (int i = 0; i < 2000 && graph.state() != WorkerState::failed; ++i) {
        const Next one = next(graph);
        EXPECT_EQ(one.outcome, JobOutcome::dry) << lie;
        EXPECT_EQ(one.out, one.in) << lie;
        std::this_thread::sleep_for(milliseconds(5));
      }
      EXPECT_EQ(graph.state(), WorkerState::failed) << lie;
    }
    std::filesystem::remove(mark);
    graph.pardon();
    until_done(graph, [](const Next&) {});
  }
}

// A host's callback may wait for the thread that runs the jobs.
TEST_F(WorkerDryTest, AnEndThatTakesLongHoldsNoJobUp) {
  WorkerGraphOptions with = dry();
  std::atomic<bool> is_over{false}, goes_on{false};
  with.worker.on_exit = [&](const WorkerExit&) {
    is_over = true;
    while (!goes_on) std::this_thread::sleep_for(milliseconds(1));
  };
  WorkerGraph graph = active(row({"gain"}), with);
  kill(graph.process_id(), SIGKILL);
  while (!is_over) std::this_thread::sleep_for(milliseconds(1));
  until_done(graph, [](const Next&) {});
  goes_on = true;
}

TEST_F(WorkerDryTest, StandByTakesOverAfterADryBlock) {
  WorkerGraphOptions with = dry();
  with.stand_by = true;
  WorkerGraph graph = active(row({"gain"}), with);
  graph.set_parameter(0, "gain_db", -3);
  Reference gain("gain", "gain_db", -3);
  for (int times = 0; times < 3; ++times) {
    end_process(graph);
    EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
    const Next back = until_done(graph, [](const Next&) {});
    EXPECT_EQ(back.out, gain(back.in));
  }
}

TEST_F(WorkerDryTest, QuarantinedProcessStaysAway) {
  WorkerGraphOptions with = dry();
  with.worker.crash_limit = 1;
  WorkerGraph graph = active(row({"gain"}), with);
  end_process(graph);
  for (int i = 0; i < 20; ++i) {
    const Next one = next(graph);
    EXPECT_EQ(one.outcome, JobOutcome::dry);
    EXPECT_EQ(one.out, one.in);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(graph.state(), WorkerState::quarantined);
  EXPECT_THAT(children(), IsEmpty());
  graph.pardon();
  until_done(graph, [](const Next&) {});
}

TEST_F(WorkerDryTest, ProcessStaysAwayAfterAFailedStartUntilPardon) {
  const auto library = folder() / "gain.so";
  std::filesystem::copy_file(built("plugins/gain.so"), library);
  WorkerGraph graph = active({{{"in"}}, {{"out"}}, {{"gain", library}}}, dry());
  const auto away = folder() / "away.so";
  std::filesystem::rename(library, away);
  end_process(graph);
  for (int i = 0; i < 2000 && graph.state() != WorkerState::failed; ++i) {
    EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(graph.state(), WorkerState::failed);
  EXPECT_THAT(graph.reason(), HasSubstr("it did not come back: "));
  EXPECT_THAT(graph.reason(), HasSubstr(library.string()));
  EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
  EXPECT_THAT(children(), IsEmpty());  // it does not try with each block
  std::filesystem::rename(away, library);
  graph.pardon();
  until_done(graph, [](const Next&) {});
}

// Whoever asks the process waits for it.
TEST_F(WorkerDryTest, CallsOtherThanJobsWaitForTheNextProcess) {
  WorkerGraph graph = active(row({"gain"}), dry());
  graph.set_parameter(0, "gain_db", -6);
  Reference gain("gain", "gain_db", -6);
  end_process(graph);
  EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
  EXPECT_EQ(graph.node_state(0).lease.state, LeaseState::ready);
  const Next back = next(graph);
  EXPECT_EQ(back.outcome, JobOutcome::done);
  EXPECT_EQ(back.out, gain(back.in));

  end_process(graph);
  EXPECT_EQ(next(graph).outcome, JobOutcome::dry);
  graph.deactivate();
  EXPECT_EQ(std::get<double>(graph.save_preset(0).values.at("gain_db")), -6);
  graph.activate({2 * block, channels, 48000});
  EXPECT_EQ(next(graph).outcome, JobOutcome::done);

  end_process(graph);
  graph.activate(sizes);
  EXPECT_EQ(next(graph).outcome, JobOutcome::done);
}

TEST_F(WorkerDryTest, AGraphMayEndWhileAProcessIsAway) {
  const Left before = settled_left();
  for (const bool stand_by : {false, true}) {
    WorkerGraphOptions with = dry();
    with.stand_by = stand_by;
    with.stand_by_memory = std::uint64_t{1} << 30;
    with.graph.jobs_in_flight = 2;
    WorkerGraph graph = active(row({"gain"}), with);
    Block in = block_of(0), out(all_samples);
    graph.submit({{in.data()}, {out.data()}}, job(0));
    end_process(graph);
    if (stand_by) graph.submit({{in.data()}, {out.data()}}, job(1));
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerDryTest, DryBlocksRefuseRetry) {
  WorkerGraphOptions with = dry();
  with.retry = true;
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { WorkerGraph(row({"gain"}), with); }),
              HasSubstr("retry and dry_while_away"));
}

}  // namespace
}  // namespace ctxbroker
