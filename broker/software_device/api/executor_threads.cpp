// SPDX-License-Identifier: Apache-2.0
// The executor's threads.
#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "api/executor.hpp"
#include "api/process.hpp"
#include "api/spin.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::software {
namespace {

using namespace std::chrono_literals;

// A hand-off to a sleeping thread costs tens of microseconds.
constexpr auto look_for_work = 30us;
// How long a kernel has the device to itself. An H200 gives each context about half of it.
constexpr auto slice = 5ms;
// A host function may wait for something that never comes once the process ends.
constexpr auto host_function_grace = 500ms;

// The thread's own, so that the driver can refuse calls from host functions.
thread_local bool host_function_running = false;
// The thread's own by its meaning.
thread_local unsigned lane_of_thread = 0;

void join(std::thread& thread) {
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();  // what runs on it called exit
  else if (thread.joinable())
    thread.join();
}

}  // namespace

bool in_host_function() noexcept {
  return host_function_running;
}

unsigned executing_lane() noexcept {
  return lane_of_thread;
}

void Executor::start_threads() {
  if (first_.joinable()) return;
  first_ = ctxbroker::detail::start_own_thread([this] { run_first(); });
  transfers_ = ctxbroker::detail::start_own_thread([this] { run_transfers(); });
}

void Executor::execute(const Next& next) {
  Command& command = *next.command;
  bool skipped = Process::fault() != CUDA_SUCCESS && !command.even_after_fault;
  if (!skipped) {
    CUresult status = outcome_of(command);
    if (status != CUDA_SUCCESS && !stopping_) Process::raise_fault(status);
  }
  finish(next);
}

// No exception passes this thread. What a host function throws ends the process, as with NVIDIA's
// driver: no handler stands between the function and the thread's start. The forced unwinding of
// pthread_exit hands over no object, but a reference to null.
[[gnu::no_sanitize("null")]] CUresult Executor::outcome_of(Command& command) {
  try {
    return command.work();
  } catch (const abi::__forced_unwind&) {  // pthread_exit, which has to go on
    throw;
  } catch (...) {
    if (command.kind != Command::Kind::host_function) return CUDA_ERROR_UNKNOWN;
    report_misuse("an exception left a host function, which may not throw: the process ends");
    std::terminate();
  }
}

void Executor::report_misuse(const char* what) {
  if (hooks_.on_misuse) hooks_.on_misuse(what);
}

void Executor::finish(const Next& next) {
  Command& command = *next.command;
  command.work = nullptr;  // what it held is given back before anyone sees it done
  command.kernel = nullptr;
  std::vector<std::shared_ptr<void>> retired;
  {
    std::lock_guard lock(mutex_);
    if (command.kind != Command::Kind::host_function && --running_ == 0) retired.swap(retired_);
    if (command.kind == Command::Kind::kernel) {
      std::erase_if(kernels_, [&](const RunningKernel& one) { return one.command == &command; });
      if (executing_lane() == 0) kernel_runs_ = false;
    }
    mark_done(next.queue);
    settle();
    tell_threads();
  }
  hooks_.on_finished();
}

void Executor::run_first() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (Next next = take_ready(Wanted::anything); next.command != nullptr) {
      lock.unlock();
      execute(next);
      lock.lock();
      continue;
    }
    std::uint64_t seen = changes_;
    auto changed = [&] { return changes_ != seen || stopping_; };
    lock.unlock();
    bool found = spin(look_for_work, changed);
    lock.lock();
    if (found) continue;
    first_sleeps_ = true;
    arrived_.wait(lock, changed);
    first_sleeps_ = false;
  }
  lock.unlock();
  hooks_.on_end(0);
}

void Executor::run_transfers() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Next next = kernel_runs_ ? take_ready(Wanted::transfers) : Next{};
    if (next.command != nullptr) {
      lock.unlock();
      execute(next);
      lock.lock();
      continue;
    }
    if (kernel_may_start()) {  // no kernel whose time is to be watched
      transfer_arrived_.wait(lock);
      continue;
    }
    auto due = Command::Clock::time_point::max();
    for (const RunningKernel& kernel : kernels_)
      if (!kernel.overdue) due = std::min(due, kernel.since + slice);
    transfer_arrived_.wait_until(lock, due);
    watch_kernels();
  }
}

// Lets others start beside a kernel whose slice is over.
void Executor::watch_kernels() {
  auto now = Command::Clock::now();
  bool any = false;
  for (RunningKernel& kernel : kernels_)
    if (!kernel.overdue && now >= kernel.since + slice) any = kernel.overdue = true;
  if (any) tell_threads();
}

// Another thread for a kernel that could start while the first one is busy.
void Executor::call_relief() {
  if (!kernel_runs_ || stopping_ || coming_reliefs_ > 0) return;
  if (find_ready(Wanted::kernels) == nullptr) return;
  if (idle_reliefs_ > 0) {
    relief_wanted_.notify_one();
    return;
  }
  auto lane = static_cast<unsigned>(reliefs_.size() + 1);
  if (lane >= most_lanes) return;
  try {
    reliefs_.push_back(ctxbroker::detail::start_own_thread([this, lane] { run_relief(lane); }));
    ++coming_reliefs_;
  } catch (const std::system_error&) {
    // No more threads here: the kernel waits for its turn.
  }
}

void Executor::run_relief(unsigned lane) {
  lane_of_thread = lane;
  std::unique_lock lock(mutex_);
  --coming_reliefs_;
  while (!stopping_) {
    Next next = kernel_runs_ ? take_ready(Wanted::kernels) : Next{};
    if (next.command != nullptr) {
      lock.unlock();
      execute(next);
      lock.lock();
      continue;
    }
    ++idle_reliefs_;
    relief_wanted_.wait(lock);
    --idle_reliefs_;
  }
  lock.unlock();
  hooks_.on_end(lane);
}

// While a host function runs. If the function ends its thread with pthread_exit, the destructor
// runs on the thread's way out.
class Executor::HostFunction {
 public:
  HostFunction(Executor& executor, const Next& next) : executor_(executor), next_(next) {}
  ~HostFunction() {
    if (!returned_) executor_.replace_host_thread(next_);
  }
  HostFunction(const HostFunction&) = delete;
  HostFunction& operator=(const HostFunction&) = delete;

  void run() {
    executor_.execute(next_);
    returned_ = true;
  }

 private:
  Executor& executor_;
  const Next& next_;
  bool returned_ = false;
};

// Another thread runs the host functions that wait; settle starts one for those that come later.
void Executor::replace_host_thread(const Next& next) {
  report_misuse("a host function ended its thread with pthread_exit; another takes its place");
  finish(next);
  const std::lock_guard lock(mutex_);
  host_function_runs_ = false;
  if (host_.joinable()) host_.detach();
  if (stopping_) {
    finished_.notify_all();
  } else if (!host_functions_.empty()) {
    try {
      host_ = ctxbroker::detail::start_own_thread([this] { run_host_functions(); });
    } catch (const std::system_error&) {
      // No more threads here: the next host function that is ready tries again.
    }
  }
}

void Executor::run_host_functions() {
  host_function_running = true;
  std::unique_lock lock(mutex_);
  while (true) {
    host_arrived_.wait(lock, [&] { return stopping_ || !host_functions_.empty(); });
    if (stopping_) return;
    Next next = std::move(host_functions_.front());
    host_functions_.pop_front();
    host_function_runs_ = true;
    lock.unlock();
    HostFunction(*this, next).run();
    lock.lock();
    host_function_runs_ = false;
    if (stopping_) finished_.notify_all();
  }
}

void Executor::stop() {
  bool host_ends = true;
  {
    std::unique_lock lock(mutex_);
    stopping_ = interrupted_ = true;
    arrived_.notify_all();
    transfer_arrived_.notify_all();
    relief_wanted_.notify_all();
    host_arrived_.notify_all();
    if (host_.get_id() != std::this_thread::get_id())
      host_ends =
          finished_.wait_for(lock, host_function_grace, [&] { return !host_function_runs_; });
  }
  join(first_);
  join(transfers_);
  for (std::thread& relief : reliefs_) join(relief);
  if (host_ends)
    join(host_);
  else
    host_.detach();
  std::lock_guard lock(mutex_);
  for (const auto& queue : active_)
    for (const auto& command : queue->waiting) command->done.store(true);
  finished_.notify_all();
}

}  // namespace ctxbroker::software
