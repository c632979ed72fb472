// SPDX-License-Identifier: Apache-2.0
// A worker that lies about its graph: whatever it answers, the host gets an error, and the process
// is ended.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "graph_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

struct GraphLie {
  const char* name;
  const char* text;
};

std::ostream& operator<<(std::ostream& stream, const GraphLie& lie) {
  return stream << lie.name;
}

class WorkerGraphLieTest : public WorkerGraphTest, public ::testing::WithParamInterface<GraphLie> {
 protected:
  // All that a host does with a graph.
  void use(const std::string& lie) {
    WorkerGraphOptions with = graph_options({"TEST_GRAPH_LIE=" + lie});
    with.worker.program = worker_file("worker_graph_liar");
    with.timeline = TimelineOptions{4096};
    WorkerGraph graph({{{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so"), "liar"}}},
                      with);
    static_cast<void>(graph.save_preset(0));
    if (lie == "value") static_cast<void>(graph.from_text(0, "amount", "1"));
    if (lie == "metrics" || lie == "metrics_number") static_cast<void>(graph.metrics());
    std::size_t text = 0;
    graph.write_timeline([&](std::string_view piece) { text += piece.size(); });
    EXPECT_EQ(text, 8U);
    graph.activate({8, 8});
    JobInfo job;
    job.width = job.height = 8;
    // Pages that the host does not own lie behind buffers that are too short.
    std::vector<float> pixels(8 * 8 * 4), output(8 * 8 * 4);
    EXPECT_EQ(graph.input_regions(job)[0].width, 8U);
    EXPECT_EQ(graph.process(pixels.data(), output.data(), job), JobOutcome::done);
    graph.deactivate();
  }
};

WorkerGraphDescription two_inputs() {
  return {{{"small", 1}, {"large", 4}},
          {{"out"}},
          {{"liar", built("test_plugins/deaths.so")}},
          {{"small", "liar.in"}, {"large", "liar.in"}, {"liar", "out"}}};
}

TEST_P(WorkerGraphLieTest, LieOfAWorkerIsFoundAndEndsIt) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { use(GetParam().name); }),
              HasSubstr(GetParam().text));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(sanitized ? 60 : 10));
  EXPECT_STREQ(to_string(wait_for_end().cause), "lie");
}

constexpr const char* length = "with a length that cannot be right";
constexpr const char* answer = "an answer of it cannot be right";

INSTANTIATE_TEST_SUITE_P(
    All, WorkerGraphLieTest,
    ::testing::Values(
        GraphLie{"open_short", length}, GraphLie{"open_beyond", length},
        GraphLie{"open_endless", length}, GraphLie{"open_grows", "grows while it is fetched"},
        GraphLie{"open_no_json", answer}, GraphLie{"open_other_type", answer},
        GraphLie{"open_no_device", answer}, GraphLie{"open_deep", answer},
        GraphLie{"bad_descriptor", answer}, GraphLie{"no_plugins", answer},
        GraphLie{"error_without_text", answer}, GraphLie{"job_input", answer},
        GraphLie{"negative_input", answer}, GraphLie{"frames_far", answer},
        GraphLie{"latencies", answer}, GraphLie{"memory", answer}, GraphLie{"states", answer},
        GraphLie{"state_long", answer}, GraphLie{"state_negative", answer},
        GraphLie{"state_short", answer}, GraphLie{"state_beyond", length},
        GraphLie{"state_endless", length}, GraphLie{"state_unasked", "that it was not asked for"},
        GraphLie{"region_huge", answer}, GraphLie{"regions_many", answer},
        GraphLie{"region_text", answer},
        GraphLie{"value", "a value that the parameter does not take"},
        GraphLie{"open_members", answer}, GraphLie{"open_slow", answer},
        GraphLie{"open_many", "more than 1048576 values"}, GraphLie{"error_lost", answer},
        GraphLie{"latency", answer}, GraphLie{"latency_huge", answer},
        GraphLie{"region_wraps", answer}, GraphLie{"region_float", answer},
        GraphLie{"stale", "has just started"}, GraphLie{"stale_open", "has just started"},
        GraphLie{"job_short", length}, GraphLie{"job_long", "a length or an outcome"},
        GraphLie{"job_outcome", "a length or an outcome"}, GraphLie{"job_error", answer},
        GraphLie{"metrics", answer}, GraphLie{"metrics_number", answer},
        GraphLie{"timeline", "its timeline is longer than it can be"},
        GraphLie{"other_plugin", answer}, GraphLie{"preset", "a preset of another plug-in"}),
    [](const auto& one) { return std::string(one.param.name); });

// Text for people's terminals, as that of a plug-in in one process.
TEST_F(WorkerGraphLieTest, TextOfAWorkersErrorIsCleaned) {
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { use("error_text"); }), "?[2J red [a?]");
}

// The host's job has a picture, and a false media would make buffers of other sizes of it.
TEST_F(WorkerGraphLieTest, FalseMediaOfAWorkerIsNotUsed) {
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { use("media"); }),
              HasSubstr("sample_rate is 0, but the plug-ins are for audio"));
}

// Only the host knows how long a timeline can be, so it asks for none that it has not ordered.
TEST_F(WorkerGraphLieTest, TimelineThatTheHostDidNotOrderIsRefused) {
  WorkerGraphOptions with = graph_options({"TEST_GRAPH_LIE=timeline"});
  with.worker.program = worker_file("worker_graph_liar");
  WorkerGraph graph({{{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so")}}}, with);
  const auto end = [](std::string_view) { throw std::runtime_error("there is a timeline"); };
  EXPECT_THAT(error_of(ErrorKind::wrong_state, [&] { graph.write_timeline(end); }),
              HasSubstr("WorkerGraphOptions::timeline"));
}

// The host has a buffer of another size for each end, in the order of the ends.
TEST_F(WorkerGraphLieTest, FalseOrderOfInputsIsRefused) {
  for (const char* lie : {"swapped_inputs", "missing_input"}) {
    WorkerGraphOptions with = graph_options({std::string("TEST_GRAPH_LIE=") + lie});
    with.worker.program = worker_file("worker_graph_liar");
    WorkerGraph graph(two_inputs(), with);
    EXPECT_THAT(error_of(ErrorKind::context_lost,
                         [&] {
                           graph.activate({8, 8});
                         }),
                HasSubstr("an answer of it cannot be right"));
  }
}

TEST_F(WorkerGraphLieTest, ARestartDoesNotChangeTheInputsOfAJob) {
  const auto mark = built("ctxb_mark_" + std::to_string(getpid()));
  WorkerGraphOptions with =
      graph_options({"TEST_GRAPH_LIE=other_frames", "TEST_GRAPH_MARK=" + mark.string()});
  with.worker.program = worker_file("worker_graph_liar");
  WorkerGraph graph(two_inputs(), with);
  graph.activate({8, 8});
  const JobInput* const inputs = graph.job_inputs().data();
  ASSERT_EQ(graph.job_inputs().size(), 3U);
  std::vector<float> small(8 * 8), large(8 * 8 * 4), output(8 * 8 * 4);
  JobInfo job;
  job.width = job.height = 8;
  const auto process = [&] {
    return graph.process({{small.data(), large.data(), large.data()}, {output.data()}}, job);
  };
  EXPECT_EQ(process(), JobOutcome::done);
  graph.kill("the next process needs other frames");
  EXPECT_THAT(error_of(ErrorKind::wrong_state, process), HasSubstr("call activate again"));
  EXPECT_EQ(graph.job_inputs().data(), inputs);
  EXPECT_EQ(inputs[1].input, 1U);
  graph.activate({8, 8});
  EXPECT_EQ(process(), JobOutcome::done);
  std::filesystem::remove(mark);
}

// The host reads the long answer while the process ends. It may be faster.
TEST_F(WorkerGraphLieTest, AnEndAfterAnAnswerIsNoLie) {
  WorkerGraphOptions with = graph_options({"TEST_GRAPH_LIE=open_dies"});
  with.worker.program = worker_file("worker_graph_liar");
  const WorkerGraphDescription description{
      {{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so")}}};
  try {
    const WorkerGraph graph(description, with);
    wait_for_end();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::context_lost);
    EXPECT_THAT(error.what(), HasSubstr("exit status 8"));
  }
  EXPECT_STREQ(to_string(wait_for_end().cause), "exited");
}

// A start that fails is treated as any other exit: the next call tries again.
TEST_F(WorkerGraphLieTest, AStartThatFailsIsTriedAgain) {
  const auto trap =
      std::filesystem::temp_directory_path() / ("ctxb_trap_" + std::to_string(getpid()));
  WorkerGraphOptions with = graph_options({"TEST_GRAPH_TRAP=" + trap.string()});
  with.worker.program = worker_file("worker_graph_liar");
  WorkerGraph graph({{{"in"}}, {{"out"}}, {{"liar", built("test_plugins/deaths.so")}}}, with);
  graph.activate({8, 8});
  std::ofstream(trap).put('x');
  graph.kill("the next start fails");
  JobInfo job;
  job.width = job.height = 8;
  std::vector<float> pixels(8 * 8 * 4);
  const auto process = [&] { return graph.process(pixels.data(), pixels.data(), job); };
  EXPECT_THAT(error_of(ErrorKind::plugin_load, process), HasSubstr("exit status 7"));
  EXPECT_EQ(process(), JobOutcome::done);
}

// The positive control: the same program works if it does not lie.
TEST_F(WorkerGraphLieTest, TheSameWorkerWithoutALieWorks) {
  use("none");
}

}  // namespace
}  // namespace ctxbroker
