// SPDX-License-Identifier: Apache-2.0
// What a graph does when its worker has ended: a stand-by takes over, a job is done once more, and
// a plug-in that crashes in save can be used.
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "graph_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class WorkerRestartTest : public WorkerGraphTest {
 public:
  ~WorkerRestartTest() override { std::filesystem::remove(trap_); }

 protected:
  // A graph whose second plug-in shows whether its parameter was restored.
  static WorkerGraph graph_with(const WorkerGraphOptions& options) {
    WorkerGraph graph(
        {{{"in"}}, {{"out"}}, {node_of("crashes", "test_plugins/"), node_of("exposure")}}, options);
    graph.set_parameter(1, "stops", 1);
    graph.activate({width, height});
    return graph;
  }
  // The first plug-in crashes in this function when the trap is set.
  WorkerGraphOptions options_with_trap(const std::string& function = "process") {
    return graph_options(
        {"CTXB_TEST_CRASH=" + function + ":segv", "CTXB_TEST_TRAP=" + trap_.string()});
  }
  void set_trap() const { std::ofstream(trap_).put('x'); }

  std::vector<float> run(WorkerGraph& graph) const {
    std::vector<float> output(input.size());
    EXPECT_EQ(graph.process(input.data(), output.data(), picture_job()), JobOutcome::done);
    return output;
  }
  void wait_for_record(const std::string& text) const {
    for (int i = 0; i < 2000; ++i) {
      for (const std::string& record : records()) {
        if (record.find(text) != std::string::npos) return;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    ADD_FAILURE() << "there is no record \"" << text << '"';
  }
  static void wait_until_gone(int process) {
    for (int i = 0; i < 2000 && kill(process, 0) == 0; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  // Waits until there is a child besides this one, and runs its program; returns its id.
  static int other_child(int process) {
    const auto program = [](const std::string& id) {
      std::error_code ended;
      return std::filesystem::read_symlink("/proc/" + id + "/exe", ended);
    };
    for (int i = 0; i < 2000; ++i) {
      for (const int child : children()) {
        const auto of_child = program(std::to_string(child));
        if (child != process && !of_child.empty() && of_child != program("self")) return child;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    ADD_FAILURE() << "there is no stand-by";
    return 0;
  }

  const std::filesystem::path trap_ =
      std::filesystem::temp_directory_path() / ("ctxb_trap_" + std::to_string(getpid()));
  const std::vector<float> input = noise(width * height * 4, 5);
};

TEST_F(WorkerRestartTest, AStandByTakesOver) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  with.worker.crash_limit = 0;
  WorkerGraph graph = graph_with(with);
  const auto expected = run(graph);
  EXPECT_NE(expected, input);
  for (std::size_t end = 1; end <= 3; ++end) {
    const int first = graph.process_id();
    const int second = other_child(first);
    kill(first, SIGKILL);
    EXPECT_THAT(wait_for_end(end).text, HasSubstr("SIGKILL"));
    EXPECT_EQ(run(graph), expected);
    EXPECT_EQ(graph.process_id(), second);
    EXPECT_EQ(graph.exits(), end);
    EXPECT_EQ(graph.last_exit()->process_id, first);
    EXPECT_EQ(graph.reason(), "");
  }
}

// A host may call from a thread in real time, which has a processor of its own.
TEST_F(WorkerRestartTest, StandByHasTheProcessorsOfTheFirstProcess) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  WorkerGraph graph = graph_with(with);
  const auto processors = [](int process) {
    cpu_set_t all;
    EXPECT_EQ(sched_getaffinity(process, sizeof all, &all), 0);
    return CPU_COUNT(&all);
  };
  other_child(graph.process_id());
  const int count = processors(0);
  std::thread caller([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    const sched_param none{};
    EXPECT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    kill(graph.process_id(), SIGKILL);
    wait_for_end();
    run(graph);
    const int second = other_child(graph.process_id());
    EXPECT_EQ(processors(second), count);
    EXPECT_EQ(sched_getscheduler(second), SCHED_OTHER);
    // The positive control.
    EXPECT_EQ(processors(0), 1);
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  });
  caller.join();
}

// Paths are those of the folder in which the graph was made.
TEST_F(WorkerRestartTest, TheHostMayChangeItsFolder) {
  const auto before = std::filesystem::current_path();
  const auto folder =
      std::filesystem::temp_directory_path() / ("ctxb_folder_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(built("lib/ctxbroker/ctxbroker-worker"), folder / "program");
  std::ofstream(folder / "policy.json") << R"({"schema": "ctxbroker.policy/1"})";
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  with.worker.program = "program";
  with.policy = "policy.json";
  {
    std::filesystem::current_path(folder);
    WorkerGraph graph = graph_with(with);
    std::filesystem::current_path(before);
    const auto expected = run(graph);
    for (std::size_t end = 1; end <= 2; ++end) {
      other_child(graph.process_id());
      kill(graph.process_id(), SIGKILL);
      wait_for_end(end);
      EXPECT_EQ(run(graph), expected);
    }
  }
  EXPECT_THAT(records(), Not(Contains(HasSubstr("did not start"))));
  std::filesystem::remove_all(folder);
}

TEST_F(WorkerRestartTest, DISABLED_HostStartsAStandByAndDies) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  const WorkerGraph graph = graph_with(with);
  std::printf("first %d.\n", graph.process_id());
  std::printf("other %d.\n", other_child(graph.process_id()));
  std::fflush(stdout);
  kill(getpid(), SIGKILL);
}

TEST_F(WorkerRestartTest, AStandByDiesWithItsHost) {
  const ChildResult child = run_child("WorkerRestartTest.DISABLED_HostStartsAStandByAndDies");
  for (const char* words : {"first ", "other "}) {
    const std::vector<int> processes = numbers_after(words, child.output);
    ASSERT_EQ(processes.size(), 1U) << child.output;
    EXPECT_GT(processes[0], 1);
    EXPECT_TRUE(dies(processes[0], std::chrono::seconds(5))) << words;
  }
}

// The positive control: without a stand-by, the next process is a new one.
TEST_F(WorkerRestartTest, GraphWithoutAStandByHasOneProcess) {
  WorkerGraph graph = graph_with(graph_options());
  run(graph);
  EXPECT_EQ(children(), std::vector<int>{graph.process_id()});
}

TEST_F(WorkerRestartTest, AStandByThatDiesIsReplaced) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  WorkerGraph graph = graph_with(with);
  const auto expected = run(graph);
  const int first = graph.process_id();
  const int second = other_child(first);
  kill(second, SIGKILL);
  for (int i = 0; i < 2000 && children().size() > 1; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(run(graph), expected);
  EXPECT_EQ(graph.process_id(), first);
  EXPECT_EQ(graph.exits(), 0U);
  EXPECT_EQ(ends().size(), 0U);
  kill(first, SIGKILL);
  wait_for_end();
  EXPECT_EQ(run(graph), expected);
  EXPECT_EQ(graph.exits(), 1U);
  other_child(graph.process_id());
}

// The crashes of all processes are those of the graph.
TEST_F(WorkerRestartTest, AStandByDoesNotHideAQuarantine) {
  WorkerGraphOptions with = options_with_trap();
  with.stand_by = true;
  with.worker.crash_limit = 2;
  WorkerGraph graph = graph_with(with);
  const auto expected = run(graph);
  set_trap();
  error_of(ErrorKind::context_lost, [&] { run(graph); });
  EXPECT_EQ(run(graph), expected);
  set_trap();
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(graph); }), HasSubstr("quarantined"));
  EXPECT_THAT(error_of(ErrorKind::wrong_state, [&] { run(graph); }), HasSubstr("quarantined"));
  graph.pardon();
  EXPECT_EQ(run(graph), expected);
  EXPECT_EQ(graph.exits(), 2U);
}

// A plug-in that crashes in activate tells whether the stand-by is activated when it takes over.
TEST_F(WorkerRestartTest, AStandByWithinItsMemoryIsActivated) {
  std::size_t end = 0;
  for (const bool is_activated : {true, false}) {
    WorkerGraphOptions with = options_with_trap("activate");
    with.stand_by = true;
    with.stand_by_memory = is_activated ? std::uint64_t{1} << 30 : 1;
    WorkerGraph graph = graph_with(with);
    const auto expected = run(graph);
    const int first = graph.process_id();
    if (is_activated) {
      wait_for_record("stand-by: it is activated");
    } else {
      wait_for_record("its stand-by is not activated, because the process holds ");
      other_child(first);
    }
    graph.set_parameter(1, "stops", 2);
    const auto brighter = run(graph);
    EXPECT_NE(brighter, expected);
    set_trap();
    kill(first, SIGKILL);
    wait_for_end(++end);
    if (is_activated) {
      EXPECT_EQ(run(graph), brighter);
      EXPECT_EQ(graph.exits(), 1U);
    } else {
      EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(graph); }), HasSubstr("in activate"));
    }
    std::filesystem::remove(trap_);
  }
}

// The stand-by follows, or is activated anew when it takes over.
TEST_F(WorkerRestartTest, ActivatedStandByHasTheLatestParameters) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  with.stand_by_memory = std::uint64_t{1} << 30;
  with.worker.crash_limit = 0;
  WorkerGraph graph = graph_with(with);
  const auto expected = run(graph);
  std::size_t end = 0;
  const auto next_process = [&] {
    kill(graph.process_id(), SIGKILL);
    wait_for_end(++end);
  };
  wait_for_record("stand-by: it is activated");
  graph.deactivate();
  wait_for_record("stand-by: it is deactivated");
  next_process();
  error_of(ErrorKind::wrong_state, [&] { run(graph); });
  EXPECT_THAT(graph.to_text(1, "stops", 1), HasSubstr("1"));  // in the stand-by
  graph.activate({2 * width, height});
  EXPECT_EQ(run(graph), expected);
  next_process();  // whatever the next stand-by has done so far
  EXPECT_EQ(run(graph), expected);
  graph.activate({width, height});
  graph.activate({2 * width, height});
  next_process();
  EXPECT_EQ(run(graph), expected);
  JobInfo wide = picture_job();
  wide.width = 2 * width;
  std::vector<float> twice(2 * input.size());
  EXPECT_EQ(graph.process(twice.data(), twice.data(), wide), JobOutcome::done);
  EXPECT_THAT(records(), Not(Contains(HasSubstr("stand-by: it cannot be activated"))));
}

// Some plug-ins hold what only one process can have.
TEST_F(WorkerRestartTest, AStandByThatCannotBeActivatedYetTakesOverLater) {
  WorkerGraphOptions with =
      graph_options({"CTXB_TEST_CRASH=activate:licence", "CTXB_TEST_LICENCE=" + trap_.string()});
  with.stand_by = true;
  with.stand_by_memory = std::uint64_t{1} << 30;
  WorkerGraph graph = graph_with(with);
  const auto expected = run(graph);
  const int first = graph.process_id();
  const int second = other_child(first);
  wait_for_record("stand-by: it cannot be activated yet: ");
  kill(first, SIGKILL);
  wait_until_gone(first);
  EXPECT_EQ(run(graph), expected);
  EXPECT_EQ(graph.process_id(), second);
  EXPECT_EQ(graph.exits(), 1U);
}

TEST_F(WorkerRestartTest, AStandByThatDoesNotStartIsAWarning) {
  WorkerGraphOptions with = graph_options();
  with.stand_by = true;
  with.worker.program =
      std::filesystem::temp_directory_path() / ("ctxb_worker_" + std::to_string(getpid()));
  std::filesystem::remove(with.worker.program);
  std::filesystem::create_symlink(built("lib/ctxbroker/ctxbroker-worker"), with.worker.program);
  {
    WorkerGraph graph = graph_with(with);
    run(graph);
    const int first = graph.process_id();
    other_child(first);
    std::filesystem::remove(with.worker.program);
    kill(first, SIGKILL);
    wait_for_end();
    run(graph);  // by the first stand-by; the second one finds no program
    kill(graph.process_id(), SIGKILL);
    wait_for_end(2);
    error_of(ErrorKind::plugin_load, [&] { run(graph); });
  }
  EXPECT_THAT(records(), Contains(HasSubstr("warning graph: the stand-by did not start: ")));
}

TEST_F(WorkerRestartTest, NothingIsLeftOfStandBys) {
  const Left before = settled_left();
  {
    WorkerGraphOptions with = graph_options();
    with.stand_by = true;
    with.stand_by_memory = std::uint64_t{1} << 30;
    WorkerGraph graph = graph_with(with);
    run(graph);
    kill(graph.process_id(), SIGKILL);
    wait_for_end();
    run(graph);
  }
  {
    WorkerGraphOptions with = graph_options();
    with.stand_by = true;
    WorkerGraph graph({{{"in"}}, {{"out"}}, {node_of("exposure")}}, with);
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerRestartTest, LostJobIsRetriedOnce) {
  for (const bool stand_by : {false, true}) {
    WorkerGraphOptions with = options_with_trap();
    with.stand_by = stand_by;
    with.retry = true;
    WorkerGraph graph = graph_with(with);
    const auto expected = run(graph);
    set_trap();
    EXPECT_EQ(run(graph), expected);
    EXPECT_EQ(graph.exits(), 1U);
    EXPECT_THAT(graph.last_exit()->text,
                HasSubstr("in process of plug-in com.example.test.crashes"));
  }
}

TEST_F(WorkerRestartTest, JobLostTwiceIsNotRetriedAgain) {
  WorkerGraphOptions with = graph_options({"CTXB_TEST_CRASH=process:segv"});
  with.retry = true;
  WorkerGraph graph = graph_with(with);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { run(graph); }), HasSubstr("SIGSEGV"));
  EXPECT_EQ(graph.exits(), 2U);
}

// The positive control.
TEST_F(WorkerRestartTest, LostJobWithoutRetryIsAnError) {
  WorkerGraph graph = graph_with(options_with_trap());
  const auto expected = run(graph);
  set_trap();
  error_of(ErrorKind::context_lost, [&] { run(graph); });
  EXPECT_EQ(run(graph), expected);
}

// Saving is for the next activation, so a graph without a state to save does not need it.
TEST_F(WorkerRestartTest, APluginThatCrashesInSaveCanBeActivated) {
  WorkerGraph graph = graph_with(graph_options({"CTXB_TEST_CRASH=save:segv"}));
  const auto expected = run(graph);
  EXPECT_EQ(graph.exits(), 0U);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { graph.deactivate(); }),
              HasSubstr("in save of plug-in com.example.test.crashes"));
  graph.activate({width, height});
  EXPECT_EQ(run(graph), expected);
  EXPECT_EQ(graph.exits(), 1U);
}

}  // namespace
}  // namespace ctxbroker
