// SPDX-License-Identifier: Apache-2.0
// Executes one device's commands, stream by stream in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "api/command.hpp"

namespace ctxbroker::software {

// Its threads: the first takes whatever is ready; the second takes transfers while the first is
// busy with a kernel, so that a long kernel holds up no copy of another stream; the third runs host
// functions. Kernels run one after the other, until one takes longer than a slice: from then on
// others run beside it, on relief threads, so that an endless kernel holds up nothing but what must
// wait for it. Markers need no thread: they are done as soon as they are reached.
class Executor {
 public:
  struct Hooks {
    std::function<void()> on_finished;          // after commands were done; no lock is held
    std::function<void(unsigned lane)> on_end;  // the last thing that a lane's thread does
    // A host function did what none may do. No lock is held.
    std::function<void(const char* what)> on_misuse = {};
  };
  // Threads that run kernels: the first is lane 0, the others are reliefs.
  static constexpr unsigned most_lanes = 32;
  explicit Executor(Hooks hooks);
  ~Executor();  // only of one that was stopped or never started
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Puts the command at the end of the queue and returns. `admit` runs under the lock first; it may
  // throw, and then nothing is enqueued. Thread-safe, like all the following.
  void enqueue(const std::shared_ptr<StreamQueue>& queue, const std::shared_ptr<Command>& command,
               const std::function<void()>& admit);

  using Commands = std::vector<std::shared_ptr<Command>>;

  // What a synchronise of this queue waits for: its last command, and for the legacy queue the last
  // of every blocking queue of the group.
  Commands pending(const StreamQueue& queue);
  // What a command that is put into this queue now has to wait for.
  Commands ahead_of_new(const StreamQueue& queue);
  // The last command of every queue of the group, of the family, of all.
  Commands pending_of_group(const void* group);
  Commands pending_of_family(const void* family);
  Commands pending_everywhere();
  // The kernels of the family that execute, or could if the device had a thread for them. Null: of
  // all families.
  Commands running_kernels_of_family(const void* family);
  // All commands that use this object.
  Commands pending_users(const void* object);

  // Returns when every command is done, which after a fault is soon.
  void wait(const Commands& commands);

  // Between the two nothing begins to execute, host functions aside. What executes goes on.
  void pause();
  void resume();
  bool executes_nothing();  // host functions aside

  // Runs `change` under the executor's lock.
  void locked(const std::function<void()>& change);

  // What is enqueued from now on in the group, or in any group of the family, waits for `command`.
  void hold_back(const void* group_or_family, const std::shared_ptr<Command>& command);

  // Holds `object` until no command that runs now can still use it.
  void retire(std::shared_ptr<void> object);

  // Looks again whether something is ready: a command of another executor was finished, or one that
  // is in no queue.
  void wake();

  // True once stop or interrupt was called: running kernels watch it and end soon.
  const std::atomic<bool>& interrupted() const noexcept { return interrupted_; }
  // After a fault, which ends every kernel.
  void interrupt() noexcept { interrupted_ = true; }

  // Ends the threads; what was not executed counts as done. Called once, at process exit or
  // restart.
  void stop();
  // After stop: gives back what the commands hold.
  void forget();
  // Does a thread wait for commands?
  bool has_waiters();

 private:
  struct Next {
    std::shared_ptr<StreamQueue> queue;
    std::shared_ptr<Command> command;
  };
  struct RunningKernel {
    const Command* command;
    Command::Clock::time_point since;
    bool overdue;  // runs longer than a slice
  };

  void start_threads();
  void run_first();
  void run_transfers();
  void run_relief(unsigned lane);
  void run_host_functions();
  void execute(const Next& next);
  CUresult outcome_of(Command& command);
  void finish(const Next& next);
  class HostFunction;
  void replace_host_thread(const Next& next);
  void report_misuse(const char* what);

  struct Barrier {
    const void* group_or_family;
    std::shared_ptr<Command> command;
  };

  // With the lock held.
  void add_order(const StreamQueue& queue, Commands& before) const;
  Commands last_of_blocking(const StreamQueue& queue) const;
  enum class Wanted : std::uint8_t { anything, transfers, kernels };
  const std::shared_ptr<StreamQueue>* find_ready(Wanted wanted) const;
  Next take_ready(Wanted wanted);
  bool kernel_may_start() const;
  void watch_kernels();
  void call_relief();
  bool settle();
  void mark_done(const std::shared_ptr<StreamQueue>& queue);
  void tell_threads();

  Hooks hooks_;
  std::mutex mutex_;
  std::condition_variable arrived_, transfer_arrived_, relief_wanted_, host_arrived_, finished_;
  std::vector<std::shared_ptr<StreamQueue>> active_;  // queues with waiting commands
  std::deque<Next> host_functions_;
  std::vector<Barrier> barriers_;
  std::vector<std::shared_ptr<void>> retired_;
  std::uint64_t last_serial_ = 0;
  std::atomic<std::uint64_t> changes_ = 0;  // of what may be ready
  unsigned waiters_ = 0;
  unsigned pauses_ = 0;
  unsigned running_ = 0;  // commands that execute now, host functions aside
  std::vector<RunningKernel> kernels_;
  bool kernel_runs_ = false;  // on the first thread
  bool first_sleeps_ = false;
  bool host_function_runs_ = false;
  unsigned idle_reliefs_ = 0, coming_reliefs_ = 0;
  std::atomic<bool> stopping_ = false, interrupted_ = false;
  std::thread first_, transfers_, host_;
  std::vector<std::thread> reliefs_;
};

// The lane of the calling thread, which executes a kernel.
unsigned executing_lane() noexcept;

// True on a thread that runs a host function now: such a function must not call the driver.
bool in_host_function() noexcept;

}  // namespace ctxbroker::software
