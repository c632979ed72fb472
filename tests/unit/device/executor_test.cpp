// SPDX-License-Identifier: Apache-2.0
// What the executor keeps, and gives back with the life of the driver.
#include "api/executor.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <csignal>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/process.hpp"

namespace ctxbroker::software {

CUresult Process::fault() noexcept {
  return CUDA_SUCCESS;
}
void Process::raise_fault(CUresult /*status*/) noexcept {}

namespace {

// As a graph does: it keeps the command of its last launch, whose work keeps the graph.
struct Launched {
  std::shared_ptr<Command> last_command;
};

std::shared_ptr<StreamQueue> stream() {
  auto queue = std::make_shared<StreamQueue>();
  queue->ordering = Ordering::independent;
  return queue;
}

std::weak_ptr<Launched> launch(Executor& executor, Command::Kind kind,
                               std::shared_ptr<Command> after) {
  auto launched = std::make_shared<Launched>();
  auto command = std::make_shared<Command>();
  command->kind = kind;
  command->work = [launched] { return CUDA_SUCCESS; };
  if (after != nullptr) command->after.push_back(std::move(after));
  launched->last_command = command;
  executor.enqueue(stream(), command, [] {});
  return launched;
}

TEST(ExecutorTest, ForgetsWhatWasLaunchedAndNeverBegun) {
  for (const Command::Kind kind :
       {Command::Kind::kernel, Command::Kind::transfer, Command::Kind::marker}) {
    Executor executor({[] {}, [](unsigned) {}});
    const std::weak_ptr<Launched> launched =
        launch(executor, kind, std::make_shared<Command>());  // which is never done
    executor.stop();
    EXPECT_FALSE(launched.expired()) << "the control: each keeps the other";
    executor.forget();
    EXPECT_TRUE(launched.expired()) << static_cast<int>(kind);
  }
}

// A host function that is ready is handed to its thread, which may be in another one.
TEST(ExecutorTest, ForgetsAHostFunctionThatWasHandedOver) {
  Executor executor({[] {}, [](unsigned) {}});
  std::atomic<bool> is_in{false};
  auto first = std::make_shared<Command>();
  first->kind = Command::Kind::host_function;
  first->work = [&] {
    is_in = true;
    while (!executor.interrupted()) std::this_thread::yield();
    return CUDA_SUCCESS;
  };
  executor.enqueue(stream(), first, [] {});
  while (!is_in) std::this_thread::yield();
  const std::weak_ptr<Launched> launched = launch(executor, Command::Kind::host_function, nullptr);
  executor.stop();
  EXPECT_FALSE(launched.expired()) << "the control";
  executor.forget();
  EXPECT_TRUE(launched.expired());
}

std::shared_ptr<Command> host_function(std::function<CUresult()> work) {
  auto command = std::make_shared<Command>();
  command->kind = Command::Kind::host_function;
  command->work = std::move(work);
  return command;
}

// Puts `misuse` into a stream several times, each followed by a host function that counts, and into
// another stream a counting one. Returns what was reported. The test's own timeout is the watchdog.
std::vector<std::string> reports_of(const std::function<CUresult()>& misuse) {
  constexpr int times = 5;
  std::mutex mutex;
  std::vector<std::string> reports;
  Executor executor({[] {}, [](unsigned) {},
                     [&](const char* what) {
                       const std::lock_guard lock(mutex);
                       reports.emplace_back(what);
                     }});
  std::atomic<int> counted{0};
  const auto count = [&counted] {
    ++counted;
    return CUDA_SUCCESS;
  };
  Executor::Commands last;
  const auto queue = stream(), other = stream();
  for (int i = 0; i < times; ++i) {
    executor.enqueue(queue, host_function(misuse), [] {});
    last = {host_function(count), host_function(count)};
    executor.enqueue(queue, last[0], [] {});
    executor.enqueue(other, last[1], [] {});
  }
  executor.wait(last);
  executor.wait(executor.pending_everywhere());
  EXPECT_EQ(counted, 2 * times);
  executor.stop();
  EXPECT_EQ(reports.size(), static_cast<std::size_t>(times));
  return reports;
}

TEST(ExecutorTest, AHostFunctionThatEndsItsThreadLeavesTheNextOnesAThread) {
  for (const std::string& report : reports_of([]() -> CUresult { pthread_exit(nullptr); })) {
    EXPECT_NE(report.find("pthread_exit"), report.npos) << report;
  }
}

// The first call of a plug-in starts the thread, and the next plug-in's function runs there.
TEST(ExecutorTest, AHostFunctionHasTheUsualFloatsWhoeverStartsItsThread) {
  int rounding = -1;
  bool takes_signals = true, reports_faults = false;
  Executor executor({[] {}, [](unsigned) {}});
  sigset_t all, before;
  sigfillset(&all);
  std::fesetround(FE_UPWARD);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto command = host_function([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    rounding = std::fegetround();
    takes_signals = sigismember(&mask, SIGTERM) == 0;
    reports_faults = sigismember(&mask, SIGFPE) == 0;
    return CUDA_SUCCESS;
  });
  executor.enqueue(stream(), command, [] {});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::fesetround(FE_TONEAREST);
  executor.wait({command});
  executor.stop();
  EXPECT_EQ(rounding, FE_TONEAREST);
  EXPECT_FALSE(takes_signals);
  EXPECT_TRUE(reports_faults);
}

// NVIDIA's driver ends the process, too. A death test forks, and the child has none of this
// process's threads.
TEST(ExecutorDeathTest, AnExceptionOfAHostFunctionEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(reports_of([]() -> CUresult { throw std::runtime_error("careless"); }), "careless");
}

// The thread may be on its way out while the driver ends.
TEST(ExecutorTest, StopsWhileAHostFunctionEndsItsThread) {
  for (int i = 0; i < 50; ++i) {
    Executor executor({[] {}, [](unsigned) {}});
    executor.enqueue(stream(), host_function([]() -> CUresult { pthread_exit(nullptr); }), [] {});
    executor.stop();
    executor.forget();
  }
}

}  // namespace
}  // namespace ctxbroker::software
