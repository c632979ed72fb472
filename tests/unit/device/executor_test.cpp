// SPDX-License-Identifier: Apache-2.0
// What the executor keeps, and gives back with the life of the driver.
#include "api/executor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

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

}  // namespace
}  // namespace ctxbroker::software
