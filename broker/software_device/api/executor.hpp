// Executes one device's commands: one thread takes what is ready, stream by stream in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "api/command.hpp"

namespace ctxbroker::software {

class Executor {
 public:
  // `on_finished` is called after every command without a lock held: other executors may wait for
  // it. `on_end` is the last that the executing thread does.
  struct Hooks {
    std::function<void()> on_finished;
    std::function<void()> on_end;
  };
  explicit Executor(Hooks hooks);
  ~Executor();  // only of one that was stopped or never started
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Puts the command at the end of the queue and returns. `admit` runs under the lock first; it may
  // throw, and then nothing is enqueued. Thread-safe, like all the following.
  void enqueue(const std::shared_ptr<StreamQueue>& queue, const std::shared_ptr<Command>& command,
               const std::function<void()>& admit);

  // The commands that a synchronise of this queue waits for: its last, and for the legacy queue
  // the last of every blocking queue of the group.
  std::vector<std::shared_ptr<Command>> pending(const StreamQueue& queue);
  // The last command of every queue of the group; of all groups for nullptr.
  std::vector<std::shared_ptr<Command>> pending_of_group(const void* group);

  // Returns when every command is done, which after a fault is soon.
  void wait(const std::vector<std::shared_ptr<Command>>& commands);

  // Runs `change` under the executor's lock.
  void locked(const std::function<void()>& change);

  // Holds `object` until no command that runs now can still use it.
  void retire(std::shared_ptr<void> object);

  // Looks again whether something is ready: a command of another executor was finished.
  void wake();

  // True once stop was called: running kernels watch it and end soon.
  const std::atomic<bool>& stopping() const noexcept { return stopping_; }

  // Ends the threads; what was not executed counts as done. Called once, at process exit.
  void stop();

 private:
  struct Next {
    std::shared_ptr<StreamQueue> queue;
    std::shared_ptr<Command> command;
  };

  void run_commands();
  void run_host_functions();
  Next take_ready();
  void execute(const Next& next);
  void finish(const Next& next);
  std::vector<std::shared_ptr<Command>> last_of_legacy_group(const StreamQueue& queue);
  void start_threads();

  Hooks hooks_;
  std::mutex mutex_;
  std::condition_variable arrived_, finished_, host_arrived_;
  std::vector<std::shared_ptr<StreamQueue>> active_;  // queues with waiting commands
  std::deque<Next> host_functions_;
  std::vector<std::shared_ptr<void>> retired_;
  std::uint64_t last_serial_ = 0;
  std::atomic<std::uint64_t> arrivals_ = 0;  // changes when something may have become ready
  unsigned waiters_ = 0;
  bool busy_ = false;  // a command is executing on the executor's own thread
  bool sleeping_ = false;
  bool host_busy_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_, host_thread_;
};

// True on a thread that runs a host function now: such a function must not call the driver.
bool in_host_function() noexcept;

}  // namespace ctxbroker::software
