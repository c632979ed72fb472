// SPDX-License-Identifier: Apache-2.0
// A worker that ends badly when the host closes it: its end is told like any other one.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>

#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

struct BadStop {
  Act act;
  WorkerExitCause cause;
  const char* text;
};

std::ostream& operator<<(std::ostream& stream, const BadStop& stop) {
  return stream << "act " << stop.act;
}

class WorkerClosingTest : public WorkerTest, public ::testing::WithParamInterface<BadStop> {};

TEST_P(WorkerClosingTest, BadEndInStopIsTold) {
  const BadStop& stop = GetParam();
  WorkerOptions with =
      options("hostile", {"TEST_WORKER_STOP=" + std::to_string(static_cast<int>(stop.act))});
  with.call_timeout = milliseconds(stop.cause == WorkerExitCause::late ? 500 : 20'000);
  Worker worker(with);
  worker.start();
  const int id = worker.process_id();
  const auto begin = std::chrono::steady_clock::now();
  worker.close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  const WorkerExit end = wait_for_end();
  EXPECT_STREQ(to_string(end.cause), to_string(stop.cause));
  EXPECT_EQ(end.process_id, id);
  EXPECT_THAT(end.text, AllOf(HasSubstr("worker \"hostile\": "), HasSubstr(stop.text),
                              HasSubstr("while it handled the module's stop")));
  EXPECT_EQ(end.next, "the host has closed it");
  EXPECT_THAT(records(), Contains("error hostile: " + end.text + "; " + end.next));
  EXPECT_EQ(worker.exits(), 1U);
  ASSERT_TRUE(worker.last_exit().has_value());
  EXPECT_EQ(worker.last_exit()->text, end.text);
  EXPECT_STREQ(to_string(worker.state()), "closed");
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerClosingTest,
    ::testing::Values(BadStop{Act::segfault, WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
                      BadStop{Act::aborts, WorkerExitCause::signal, "signal 6 (SIGABRT)"},
                      BadStop{Act::exit_0, WorkerExitCause::exited, "exit status 0"},
                      BadStop{Act::exit_3, WorkerExitCause::exited, "exit status 3"},
                      BadStop{Act::bad_sequence, WorkerExitCause::lie, "that nobody has made"},
                      BadStop{Act::endless, WorkerExitCause::late, "did not end within 500 ms"}));

// After its stop, code of the module's libraries runs when the process exits.
TEST_F(WorkerTest, BadEndAfterStopIsTold) {
  struct {
    const char* variable;
    const char* cause;
    const char* text;
  } const cases[] = {
      {"TEST_WORKER_AT_EXIT=100", "signal", "ended by signal 11 (SIGSEGV) after its stop"},
      {"TEST_WORKER_AT_EXIT=103", "exited", "ended itself with exit status 3 after its stop"},
      {"TEST_WORKER_AT_EXIT=107", "late", "did not exit within 500 ms after its stop"}};
  std::size_t number = 0;
  for (const auto& one : cases) {
    WorkerOptions with = options("hostile", {one.variable});
    if (one.cause == std::string("late")) with.call_timeout = milliseconds(500);
    Worker worker(with);
    worker.start();
    worker.close();
    const WorkerExit end = wait_for_end(++number);
    EXPECT_STREQ(to_string(end.cause), one.cause);
    EXPECT_THAT(end.text, HasSubstr(one.text));
  }
}

TEST_F(WorkerTest, FailedStopIsTold) {
  Worker worker(options("hostile", {"TEST_WORKER_STOP=throw"}));
  worker.start();
  worker.close();
  EXPECT_THAT(records(), Contains("error hostile: the module's stop failed: thrown in stop"));
  EXPECT_EQ(worker.exits(), 0U);
}

// A host forks to start a tool, and the child ends its copies of the host's objects.
TEST_F(WorkerTest, ForkedProcessThatEndsItsCopyLeavesTheWorkerAlone) {
  auto worker = std::make_unique<Worker>(options());
  std::optional<WorkerBuffer> buffer(worker->lend(4096));
  const int id = worker->process_id();
  const pid_t child = ::fork();
  if (child == 0) {
    buffer.reset();
    worker->kill("it is not this process's");
    worker.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(say(*worker, Act::echo, "still there"), "still there");
  EXPECT_EQ(worker->process_id(), id);
  EXPECT_EQ(worker->exits(), 0U);
  EXPECT_TRUE(worker->is_lent(buffer->handle(), buffer->bytes()));
}

TEST_F(WorkerTest, ForkedProcessIsToldThatTheWorkerIsNotItsOwn) {
  Worker worker(options());
  worker.start();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = error_of(ErrorKind::wrong_state, [&] { say(worker, Act::echo, "x"); });
    ::_exit(text.find("this process was forked") == std::string::npos ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Its thread cannot wait for itself.
TEST_F(WorkerTest, HostMayEndAWorkerInsideItsCallbacks) {
  std::size_t number = 0;
  for (const bool is_reset : {false, true}) {
    std::unique_ptr<Worker> worker;
    const auto end = [&] { is_reset ? worker.reset() : worker->close(); };
    WorkerOptions with = options();
    with.on_exit = [&, tell = with.on_exit](const WorkerExit& exit) {
      end();
      tell(exit);
    };
    worker = std::make_unique<Worker>(with);
    worker->start();
    ::kill(worker->process_id(), SIGKILL);
    wait_for_end(++number);
    EXPECT_EQ(worker == nullptr, is_reset);
  }
}

TEST_F(WorkerTest, HostMayEndAWorkerInsideItsRecords) {
  std::atomic<bool> is_closed{false};
  std::unique_ptr<Worker> worker;
  WorkerOptions with = options();
  with.records = [&](const Record& record) {
    if (record.severity != Severity::error || is_closed) return;
    worker->close();
    is_closed = true;
  };
  worker = std::make_unique<Worker>(with);
  worker->start();
  ::kill(worker->process_id(), SIGKILL);
  wait_for_end();
  EXPECT_TRUE(is_closed);
  EXPECT_STREQ(to_string(worker->state()), "closed");
}

TEST_F(WorkerTest, PeacefulCloseIsNoExit) {
  for (const bool is_killed : {false, true}) {
    Worker worker(options());
    worker.start();
    if (is_killed) worker.kill("first");
    worker.close();
    EXPECT_EQ(worker.exits(), is_killed ? 1U : 0U);
  }
  EXPECT_EQ(ends().size(), 1U);
  EXPECT_THAT(records(), Each(Not(HasSubstr("stop"))));
}

}  // namespace
}  // namespace ctxbroker
