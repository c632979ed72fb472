// SPDX-License-Identifier: Apache-2.0
// An end is told before the system has ended the process, unless the process was lent memory.
#include <unistd.h>

#include <csignal>
#include <future>
#include <thread>

#include "support/held_process.hpp"
#include "support/left.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using Time = std::chrono::steady_clock;

double milliseconds_since(Time::time_point start) {
  return std::chrono::duration<double, std::milli>(Time::now() - start).count();
}

class WorkerLeavingTest : public WorkerTest {
 protected:
  // Returns when the call has thrown.
  static std::string crash(Worker& worker, Act act = Act::segfault, milliseconds timeout = {}) {
    return error_of(ErrorKind::context_lost, [&] {
      worker.call({static_cast<std::uint32_t>(act), 0, nullptr, 0}, nullptr, 0, timeout);
    });
  }
  static std::future<std::string> crash_on_another_thread(Worker& worker, Act act) {
    return std::async(std::launch::async, [&worker, act] { return crash(worker, act); });
  }
};

struct SlowDeath {
  Act act;
  WorkerExitCause cause;
  const char* text;
};

TEST_F(WorkerLeavingTest, EndOfALeavingProcessIsToldAndTheNextWorks) {
  Worker worker(options());
  std::size_t number = 0;
  for (const SlowDeath& death :
       {SlowDeath{Act::segfault, WorkerExitCause::signal, "signal 11 (SIGSEGV)"},
        SlowDeath{Act::exit_3, WorkerExitCause::exited, "exit status 3"},
        SlowDeath{Act::kills_itself, WorkerExitCause::signal, "signal 9 (SIGKILL)"},
        SlowDeath{Act::endless, WorkerExitCause::late, "did not end within 400 ms"},
        SlowDeath{Act::bad_sequence, WorkerExitCause::lie, "that nobody has made"}}) {
    worker.start();
    HeldProcess held(worker.process_id());
    const bool is_late = death.cause == WorkerExitCause::late;
    const std::string text = crash(worker, death.act, milliseconds(is_late ? 400 : 5000));
    EXPECT_TRUE(exists(held.process())) << text;
    EXPECT_THAT(text, HasSubstr(death.text));
    EXPECT_THAT(text, Not(HasSubstr("not ended it yet")));
    const WorkerExit end = wait_for_end(++number);
    EXPECT_STREQ(to_string(end.cause), to_string(death.cause)) << text;
    EXPECT_EQ(end.process_id, held.process());
    EXPECT_EQ(end.in_flight.size(), 1U);

    EXPECT_EQ(say(worker, Act::echo, "back"), "back");
    EXPECT_NE(worker.process_id(), held.process());
    EXPECT_TRUE(exists(held.process()));
    held.release();
    EXPECT_TRUE(goes(held.process()));  // the worker has waited for it
    EXPECT_EQ(say(worker, Act::echo, "still"), "still");
  }
  EXPECT_EQ(ends().size(), number);
}

TEST_F(WorkerLeavingTest, EndOfALeavingProcessIsKnownWithin10Milliseconds) {
  Worker worker(options());
  std::vector<double> in_call, idle;
  for (std::size_t i = 1; i <= 18; i += 2) {
    worker.start();
    HeldProcess first(worker.process_id());
    auto caller = crash_on_another_thread(worker, Act::deadlock);
    std::this_thread::sleep_for(milliseconds(50));
    auto killed = Time::now();
    kill(first.process(), SIGKILL);
    caller.wait();
    in_call.push_back(milliseconds_since(killed));
    first.release();

    worker.start();
    HeldProcess second(worker.process_id());
    killed = Time::now();
    kill(second.process(), SIGKILL);
    EXPECT_STREQ(to_string(wait_for_end(i + 1).cause), "signal");
    idle.push_back(milliseconds_since(killed));
  }
  // The fastest, because the machine may be busy.
  EXPECT_LT(*std::min_element(in_call.begin(), in_call.end()), 10);
  EXPECT_LT(*std::min_element(idle.begin(), idle.end()), 10);
}

// Work on the device may write into lent memory until the process has gone.
TEST_F(WorkerLeavingTest, AProcessThatWasLentMemoryHasGoneWhenItsEndIsTold) {
  enum class Lent { block, taken_back_block, descriptor, descriptor_of_worker };
  for (const Lent what :
       {Lent::block, Lent::taken_back_block, Lent::descriptor, Lent::descriptor_of_worker}) {
    for (const Act act : {Act::segfault, Act::bad_sequence}) {
      Worker worker(options());
      WorkerBuffer block;
      if (what == Lent::block || what == Lent::taken_back_block) block = worker.lend(4096);
      if (what == Lent::taken_back_block) block = {};
      if (what == Lent::descriptor_of_worker) {
        worker.call({Act::gives});
        int given = -1;
        while (given < 0) given = worker.take_descriptor(5);
        close(given);
      }
      if (what == Lent::descriptor) static_cast<void>(worker.pass_descriptor(STDIN_FILENO));
      worker.start();
      const std::size_t told = ends().size();
      HeldProcess held(worker.process_id());
      auto call = crash_on_another_thread(worker, act);
      const bool waits = call.wait_for(milliseconds(300)) == std::future_status::timeout;
      EXPECT_EQ(waits, what != Lent::taken_back_block);
      EXPECT_EQ(worker.process_id(), waits ? held.process() : 0);
      if (!waits) continue;
      EXPECT_EQ(ends().size(), told);
      held.release();
      call.wait();
      EXPECT_THAT(children(), Not(Contains(held.process())));
    }
  }
}

TEST_F(WorkerLeavingTest, MainThreadThatEndsAloneEndsTheProcess) {
  for (const bool lends : {false, true}) {
    Worker worker(options());
    WorkerBuffer block;
    if (lends) block = worker.lend(4096);
    for (const auto& [act, text] : {std::pair(Act::ends_alone, "signal 9 (SIGKILL)"),
                                    std::pair(Act::ends_alone_7, "exit status 7")}) {
      worker.start();
      const int process = worker.process_id();
      const auto begin = Time::now();
      const std::string said = crash(worker, act);
      EXPECT_LT(milliseconds_since(begin), 3000);  // call_timeout is 5 s
      if (!lends) {
        EXPECT_THAT(said, HasSubstr(text));
      }
      EXPECT_TRUE(goes(process));
    }
  }
}

// With CLONE_PARENT, a process makes children of its parent.
TEST_F(WorkerLeavingTest, SiblingsThatAWorkerMakesGoWithIt) {
  const Left before = settled_left();
  for (const bool is_closed : {false, true}) {
    Worker worker(options());
    worker.call({Act::makes_siblings});
    // The control: the host has them. The one that has ended stays no zombie.
    const auto deadline = Time::now() + std::chrono::seconds(20);
    EXPECT_GE(children().size(), 2U);
    while (children().size() != 2 && Time::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(children().size(), 2U);
    if (is_closed) {
      worker.close();
    } else {
      crash(worker);
      while (!children().empty() && Time::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    EXPECT_EQ(children().size(), before.children);
  }
  EXPECT_EQ(left_after_all(before), before);
}

// A process that is traced stays until its tracer has seen its end.
TEST_F(WorkerLeavingTest, ProcessThatItsTracerKeepsMakesNobodyWait) {
  const Left before = settled_left();
  {
    Worker worker(options());
    worker.start();
    const int process = worker.process_id();
    const std::uint64_t time = 9000;
    const auto begin = Time::now();
    const std::string text = error_of(ErrorKind::context_lost, [&] {
      worker.call({Act::is_traced, 0, &time, sizeof time});
    });
    EXPECT_THAT(text, HasSubstr("signal 9 (SIGKILL)"));
    EXPECT_TRUE(exists(process));  // the control
    EXPECT_EQ(say(worker, Act::echo, "back"), "back");
    worker.close();
    EXPECT_LT(milliseconds_since(begin), 7000);
    EXPECT_TRUE(exists(process));
    EXPECT_TRUE(goes(process));
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerLeavingTest, CloseWaitsForALeavingProcess) {
  const Left before = settled_left();
  {
    Worker worker(options());
    worker.start();
    HeldProcess first(worker.process_id());
    crash(worker);
    worker.start();
    HeldProcess second(worker.process_id());
    crash(worker);
    auto closed = std::async(std::launch::async, [&] { worker.close(); });
    EXPECT_EQ(closed.wait_for(milliseconds(200)), std::future_status::timeout);
    second.release();
    EXPECT_EQ(closed.wait_for(milliseconds(200)), std::future_status::timeout);
    first.release();
    closed.wait();
    EXPECT_FALSE(exists(first.process()));
    EXPECT_FALSE(exists(second.process()));
  }
  EXPECT_EQ(left_after_all(before), before);
}

TEST_F(WorkerLeavingTest, CloseDoesNotWaitForEverForALeavingProcess) {
  Worker worker(options());
  worker.start();
  HeldProcess held(worker.process_id());
  crash(worker);
  const auto begin = Time::now();
  worker.close();
  EXPECT_LT(milliseconds_since(begin), 10'000);
  EXPECT_TRUE(exists(held.process()));
  held.release();
  EXPECT_TRUE(goes(held.process()));  // somebody waits for it still
}

}  // namespace
}  // namespace ctxbroker
