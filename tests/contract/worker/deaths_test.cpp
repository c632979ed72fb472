// SPDX-License-Identifier: Apache-2.0
// Every way in which a worker can end: named, without harm to anybody else, and back with the next
// call. The same acts in the host's own process end it.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "support/child_process.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

using Time = std::chrono::steady_clock;

// Another worker, whose calls go on all the while.
class Bystander {
 public:
  explicit Bystander(WorkerOptions options) : worker_(std::move(options)) {
    worker_.start();
    thread_ = std::thread([this] { run(); });
    while (right + wrong == 0) std::this_thread::yield();
  }
  ~Bystander() {
    stop_ = true;
    thread_.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(right, 0);
    EXPECT_EQ(worker_.exits(), 0U);
  }
  std::atomic<int> right{0}, wrong{0};

 private:
  void run() {
    for (std::uint64_t i = 0; !stop_; ++i) {
      std::uint64_t answer = 0;
      try {
        worker_.call({Act::echo, 0, &i, sizeof i}, &answer, sizeof answer);
      } catch (const std::exception&) {
        ++wrong;
        continue;
      }
      ++(answer == i ? right : wrong);
    }
  }
  Worker worker_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Death {
  Act act;
  WorkerExitCause cause;
  const char* text;
};

std::ostream& operator<<(std::ostream& stream, const Death& death) {
  return stream << "act " << death.act;
}

class WorkerDeathTest : public WorkerTest, public ::testing::WithParamInterface<Death> {};

TEST_P(WorkerDeathTest, DeathOfAWorkerIsNamedAndStopsNobodyElse) {
  const Death& death = GetParam();
  WorkerOptions with = options();
  with.call_timeout = milliseconds(death.cause == WorkerExitCause::late ? 400 : 20'000);
  if (death.cause == WorkerExitCause::out_of_memory) {
    if (sanitized) GTEST_SKIP() << "a sanitizer needs the memory itself";
    with.memory_limit = 256 << 20;
  }
  Worker worker(with);
  worker.start();
  const Bystander bystander(options("innocent"));
  const std::string text = error_of(ErrorKind::context_lost, [&] {
    worker.call({static_cast<std::uint32_t>(death.act), 42, nullptr, 0});
  });
  EXPECT_THAT(text, HasSubstr("worker \"hostile\": "));
  EXPECT_THAT(text, HasSubstr(death.text));
  if (death.cause != WorkerExitCause::cuda_ended) {
    EXPECT_THAT(text, HasSubstr("while it handled message " + std::to_string(death.act) +
                                " of subject 42"));
  }
  EXPECT_THAT(text, HasSubstr("the next call starts it again"));
  const WorkerExit end = wait_for_end();
  EXPECT_STREQ(to_string(end.cause), to_string(death.cause));
  EXPECT_THAT(records(), Contains("error hostile: " + end.text + "; " + end.next));
  EXPECT_EQ(worker.last_exit()->text, end.text);
  EXPECT_EQ(worker.reason(), end.text + "; " + end.next);
  EXPECT_EQ(say(worker, Act::echo, "back"), "back");
  EXPECT_EQ(worker.reason(), "");
  EXPECT_EQ(worker.exits(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerDeathTest,
    ::testing::Values(Death{Act::segfault, WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
                      Death{Act::aborts, WorkerExitCause::signal, "signal 6 (SIGABRT)"},
                      Death{Act::exit_0, WorkerExitCause::exited, "exit status 0"},
                      Death{Act::exit_3, WorkerExitCause::exited, "exit status 3"},
                      Death{Act::overflow, WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
                      Death{Act::kills_itself, WorkerExitCause::signal, "signal 9 (SIGKILL)"},
                      Death{Act::stops_itself, WorkerExitCause::stopped, "stopped by a signal"},
                      Death{Act::endless, WorkerExitCause::late, "did not end within 400 ms"},
                      Death{Act::deadlock, WorkerExitCause::late, "did not end within 400 ms"},
                      Death{Act::allocates, WorkerExitCause::out_of_memory, "no more memory"},
                      Death{Act::mallocs, WorkerExitCause::out_of_memory, "no more memory"},
                      Death{Act::reserves, WorkerExitCause::out_of_memory, "no more memory"},
                      Death{Act::forks_and_ends, WorkerExitCause::exited, "exit status 5"},
                      Death{Act::device_trap, WorkerExitCause::cuda_ended,
                            "says that its CUDA context is lost"},
                      Death{Act::device_fault, WorkerExitCause::cuda_ended,
                            "says that its CUDA context is lost"}));

// The positive control: without a worker, the process of whoever calls ends.
TEST_F(WorkerTest, DISABLED_HostPerformsTheAct) {
  const char* const act = std::getenv("TEST_WORKER_ACT");
  ASSERT_NE(act, nullptr);
  test::perform(static_cast<Act>(std::atoi(act)));
  std::printf("it lives on\n");
}

TEST_F(WorkerTest, TheSameActsEndAHostWithoutAWorker) {
  for (const Act act : {Act::segfault, Act::aborts, Act::exit_3, Act::overflow, Act::kills_itself,
                        Act::forks_and_ends}) {
    const ChildResult child = run_child("WorkerTest.DISABLED_HostPerformsTheAct",
                                        {{"TEST_WORKER_ACT", std::to_string(act)}});
    EXPECT_EQ(child.output.find("it lives on"), std::string::npos) << act;
    EXPECT_NE(child.exit_code, 0) << act;
  }
}

TEST_F(WorkerTest, DeathFromOutsideIsKnownWithin10Milliseconds) {
  std::binary_semaphore asleep{0};
  WorkerOptions with = options();
  with.on_notification = [&](std::uint32_t, const void*, std::size_t) { asleep.release(); };
  Worker worker(with);
  std::vector<double> times;
  std::size_t end = 0;
  do {
    times.clear();
    for (int i = 0; i < 9; ++i) {
      worker.start();
      Time::time_point thrown;
      std::thread caller([&] {
        error_of(ErrorKind::context_lost, [&] { ask(worker, Act::sleeps, 60'000); });
        thrown = Time::now();
      });
      EXPECT_TRUE(asleep.try_acquire_for(std::chrono::seconds(20)));
      std::this_thread::sleep_for(milliseconds(50));  // until the host's threads are, too
      const auto killed = Time::now();
      kill(worker.process_id(), SIGKILL);
      caller.join();
      times.push_back(std::chrono::duration<double, std::milli>(thrown - killed).count());
      EXPECT_STREQ(to_string(wait_for_end(++end).cause), "signal");
    }
    std::sort(times.begin(), times.end());
    // The median, in one of three rounds, because the machine may be busy.
  } while (times[4] >= 10 && end < 27);
  EXPECT_LT(times[4], 10) << times.front() << " to " << times.back();
}

// Otherwise both would take messages, and answer them.
TEST_F(WorkerTest, ChildThatReturnsFromTheModuleServesNobody) {
  std::atomic<int> told{0};
  WorkerOptions with = options();
  with.on_notification = [&](std::uint32_t, const void*, std::size_t) { ++told; };
  Worker worker(with);
  const auto id = [&] { return ask<std::array<std::int32_t, 2>>(worker, Act::group)[0]; };
  const std::int32_t before = id();
  say(worker, Act::notifies, "the control");
  for (int round = 0; round < 10; ++round) {
    const auto child = static_cast<int>(ask(worker, Act::forks_and_returns));
    ASSERT_GT(child, 0) << "the worker itself answers";
    EXPECT_TRUE(dies(child, std::chrono::seconds(10))) << round;
    EXPECT_EQ(id(), before);
  }
  EXPECT_EQ(worker.exits(), 0U);
  worker.close();
  EXPECT_EQ(told, 1);
}

TEST_F(WorkerTest, AHostThatIgnoresItsChildrenStillHearsOfTheirEnd) {
  auto* const before = std::signal(SIGCHLD, SIG_IGN);
  Worker worker(options());
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { worker.call({Act::segfault}); }),
              AnyOf(HasSubstr("how is not known"), HasSubstr("signal 11")));  // seen while it died
  error_of(ErrorKind::context_lost,
           [&] { worker.call({Act::endless}, nullptr, 0, milliseconds(100)); });
  EXPECT_STREQ(to_string(wait_for_end(2).cause), "late");
  worker.close();
  std::signal(SIGCHLD, before);
}

TEST_F(WorkerTest, AnIdleWorkersDeathIsNoticedToo) {
  Worker worker(options());
  worker.start();
  kill(worker.process_id(), SIGTERM);
  EXPECT_THAT(wait_for_end().text, HasSubstr("signal 15 (SIGTERM)"));
  EXPECT_EQ(worker.state(), WorkerState::missing);
}

TEST_F(WorkerTest, AWorkerThatIsStoppedWhileIdleIsNotDisturbed) {
  Worker worker(options());
  worker.start();
  const int id = worker.process_id();
  kill(id, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(worker.process_id(), id);
  kill(id, SIGCONT);
  EXPECT_EQ(say(worker, Act::echo, "on"), "on");
  kill(id, SIGSTOP);
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { say(worker, Act::echo); }),
              HasSubstr("stopped by a signal"));
}

// The system does not say that it is stopped.
TEST_F(WorkerTest, AWorkerWithoutAHeartbeatIsEnded) {
  WorkerOptions with = options();
  with.call_timeout = std::chrono::seconds(20);
  with.heartbeat_timeout = milliseconds(1000);
  Worker worker(with);
  ask(worker, Act::sleeps, 1500);  // the control: its heart beats
  EXPECT_THAT(error_of(ErrorKind::context_lost, [&] { worker.call({Act::holds_others}); }),
              HasSubstr("it did not run for 1000 ms while it handled message"));
  EXPECT_STREQ(to_string(wait_for_end().cause), "stopped");
  EXPECT_EQ(say(worker, Act::echo, "back"), "back");
  EXPECT_EQ(worker.exits(), 1U);
}

TEST_F(WorkerTest, AllCallsInFlightEndAndAreSuspects) {
  WorkerOptions two = options();
  two.threads = 2;
  Worker worker(two);
  worker.start();
  std::thread other(
      [&] { error_of(ErrorKind::context_lost, [&] { ask(worker, Act::sleeps, 60'000); }); });
  std::this_thread::sleep_for(milliseconds(100));
  error_of(ErrorKind::context_lost, [&] { worker.call({Act::segfault, 9, nullptr, 0}); });
  other.join();
  const WorkerExit end = wait_for_end();
  ASSERT_EQ(end.in_flight.size(), 2U);
  EXPECT_EQ(end.in_flight[0].type + end.in_flight[1].type, Act::segfault + Act::sleeps);
  EXPECT_EQ(end.in_flight[0].subject + end.in_flight[1].subject, 9U);
}

// The caller gets the processor so rarely that it does not see the process.
TEST_F(WorkerTest, AProcessThatEndsAtOnceIsNotWaitedFor) {
  WorkerOptions short_lived = options();
  short_lived.module.clear();
  short_lived.program = "/bin/false";
  short_lived.start_timeout = std::chrono::seconds(30);
  Worker worker(short_lived);
  const auto stay_on_a_processor = [] {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(sched_getcpu(), &first);
    sched_setaffinity(0, sizeof first, &first);
  };
  std::atomic<bool> is_over = false;
  std::thread caller([&] {
    stay_on_a_processor();
    std::thread busy([&] {
      while (!is_over) continue;
    });
    const sched_param none{};
    EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    const auto begin = Time::now();
    EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { worker.start(); }),
                HasSubstr("exit status 1"));
    EXPECT_LT(Time::now() - begin, std::chrono::seconds(20));
    is_over = true;
    busy.join();
  });
  caller.join();
}

TEST_F(WorkerTest, TooManyCrashesQuarantineAWorker) {
  WorkerOptions strict = options();
  strict.crash_limit = 3;
  Worker worker(strict);
  const auto crash = [&] {
    error_of(ErrorKind::context_lost, [&] { worker.call({Act::segfault}); });
  };
  crash();
  worker.start();
  worker.kill("the host's own ends do not count");
  crash();
  EXPECT_EQ(worker.state(), WorkerState::missing);
  crash();
  EXPECT_EQ(worker.state(), WorkerState::quarantined);
  EXPECT_EQ(worker.exits(), 4U);
  EXPECT_THAT(error_of(ErrorKind::wrong_state, [&] { say(worker, Act::echo); }),
              HasSubstr("has ended 3 times within 60000 ms, so it is quarantined"));
  error_of(ErrorKind::wrong_state, [&] { worker.start(); });
  worker.pardon();
  EXPECT_EQ(say(worker, Act::echo, "better"), "better");
  crash();
  EXPECT_EQ(worker.state(), WorkerState::missing);
}

TEST_F(WorkerTest, AQuietTimeForgivesOneCrash) {
  WorkerOptions forgiving = options();
  forgiving.crash_limit = 3;
  forgiving.quiet_interval = milliseconds(500);
  Worker worker(forgiving);
  const auto crash = [&] {
    const auto begin = Time::now();
    error_of(ErrorKind::context_lost, [&] { worker.call({Act::segfault}); });
    return begin;
  };
  for (int attempt = 0; attempt < 20; ++attempt) {  // a busy machine may need several
    worker.pardon();
    const auto first = crash(), second = crash(), quiet = Time::now();
    std::this_thread::sleep_for(milliseconds(600));
    const auto third = crash();
    ASSERT_STREQ(to_string(worker.state()), "missing") << "the first one is not forgiven";
    const auto fourth = crash();
    const bool was_quick = quiet - first < forgiving.quiet_interval &&
                           fourth - second < 2 * forgiving.quiet_interval &&
                           Time::now() - third < forgiving.quiet_interval;
    if (!was_quick) continue;
    EXPECT_STREQ(to_string(worker.state()), "quarantined") << "the second one is forgiven too";
    return;
  }
  FAIL() << "this machine is too busy";
}

}  // namespace
}  // namespace ctxbroker
