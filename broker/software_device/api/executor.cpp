#include "api/executor.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/process.hpp"

namespace ctxbroker::software {
namespace {

using namespace std::chrono_literals;

// A hand-off to a sleeping thread costs tens of microseconds: both sides look a short while before
// they sleep.
constexpr auto look_for_work = 30us;
constexpr auto look_for_end = 20us;

thread_local bool host_function_running = false;

template <class Condition>
bool spin(std::chrono::nanoseconds limit, Condition condition) {
  static const bool alone = std::thread::hardware_concurrency() < 2;
  if (alone) return condition();
  auto end = Command::Clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
  } while (Command::Clock::now() < end);
  return condition();
}

bool all_done(const std::vector<std::shared_ptr<Command>>& commands) {
  return std::all_of(commands.begin(), commands.end(), [](const auto& command) {
    return command->done.load(std::memory_order_acquire);
  });
}

}  // namespace

bool in_host_function() noexcept {
  return host_function_running;
}

Executor::Executor(Hooks hooks) : hooks_(std::move(hooks)) {}

Executor::~Executor() = default;

void Executor::start_threads() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run_commands(); });
}

void Executor::enqueue(const std::shared_ptr<StreamQueue>& queue,
                       const std::shared_ptr<Command>& command,
                       const std::function<void()>& admit) {
  bool wake_thread = false;
  {
    std::lock_guard lock(mutex_);
    admit();
    if (stopping_) fail(CUDA_ERROR_DEINITIALIZED);
    start_threads();
    if (queue->ordering == Ordering::legacy) {
      auto others = last_of_legacy_group(*queue);
      command->after.insert(command->after.end(), others.begin(), others.end());
    } else if (queue->ordering == Ordering::blocking && !queue->legacy->waiting.empty()) {
      command->after.push_back(queue->legacy->waiting.back());
    }
    command->serial = ++last_serial_;
    if (queue->waiting.empty()) active_.push_back(queue);
    queue->waiting.push_back(command);
    arrivals_.fetch_add(1, std::memory_order_release);
    wake_thread = sleeping_;
  }
  if (wake_thread) arrived_.notify_one();
}

// The last commands of the group's blocking queues. The lock is held.
std::vector<std::shared_ptr<Command>> Executor::last_of_legacy_group(const StreamQueue& queue) {
  std::vector<std::shared_ptr<Command>> last;
  for (const auto& other : active_)
    if (other->group == queue.group && other->ordering == Ordering::blocking)
      last.push_back(other->waiting.back());
  return last;
}

std::vector<std::shared_ptr<Command>> Executor::pending(const StreamQueue& queue) {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Command>> last;
  if (queue.ordering == Ordering::legacy) last = last_of_legacy_group(queue);
  if (!queue.waiting.empty()) last.push_back(queue.waiting.back());
  return last;
}

std::vector<std::shared_ptr<Command>> Executor::pending_of_group(const void* group) {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Command>> last;
  for (const auto& queue : active_)
    if (group == nullptr || queue->group == group) last.push_back(queue->waiting.back());
  return last;
}

void Executor::wait(const std::vector<std::shared_ptr<Command>>& commands) {
  if (spin(look_for_end, [&] { return all_done(commands); })) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  finished_.wait(lock, [&] { return all_done(commands); });
  --waiters_;
}

void Executor::locked(const std::function<void()>& change) {
  std::lock_guard lock(mutex_);
  change();
}

void Executor::retire(std::shared_ptr<void> object) {
  std::lock_guard lock(mutex_);
  if (busy_) retired_.push_back(std::move(object));
}

void Executor::wake() {
  {
    std::lock_guard lock(mutex_);
    arrivals_.fetch_add(1, std::memory_order_release);
  }
  arrived_.notify_one();
}

// The oldest ready command of the most urgent queue. The lock is held.
Executor::Next Executor::take_ready() {
  const std::shared_ptr<StreamQueue>* best = nullptr;
  for (const auto& queue : active_) {
    const Command& head = *queue->waiting.front();
    if (head.started || !all_done(head.after)) continue;
    if (best == nullptr || queue->priority < (*best)->priority ||
        (queue->priority == (*best)->priority && head.serial < (*best)->waiting.front()->serial))
      best = &queue;
  }
  if (best == nullptr) return {};
  Next next{*best, (*best)->waiting.front()};
  next.command->started = true;
  return next;
}

void Executor::execute(const Next& next) {
  Command& command = *next.command;
  bool skipped = Process::fault() != CUDA_SUCCESS && !command.even_after_fault;
  if (!skipped && command.work) {
    CUresult status = command.work();
    if (status != CUDA_SUCCESS && !stopping_) Process::raise_fault(status);
  }
  command.work = nullptr;  // what it held is given back before anyone sees it done
}

void Executor::finish(const Next& next) {
  bool tell = false;
  std::vector<std::shared_ptr<void>> retired;
  {
    std::lock_guard lock(mutex_);
    if (!next.command->on_host_thread) {
      busy_ = false;
      retired.swap(retired_);
    }
    next.command->after.clear();
    next.command->finished_at = Command::Clock::now();
    next.command->done.store(true, std::memory_order_release);
    next.queue->waiting.pop_front();
    if (next.queue->waiting.empty()) std::erase(active_, next.queue);
    arrivals_.fetch_add(1, std::memory_order_release);
    tell = waiters_ > 0;
  }
  if (tell) finished_.notify_all();
  hooks_.on_finished();
}

void Executor::run_commands() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Next next = take_ready();
    if (next.command == nullptr) {
      std::uint64_t seen = arrivals_;
      auto changed = [&] { return arrivals_ != seen || stopping_; };
      lock.unlock();
      bool found = spin(look_for_work, changed);
      lock.lock();
      if (found) continue;
      sleeping_ = true;
      arrived_.wait(lock, changed);
      sleeping_ = false;
      continue;
    }
    if (next.command->on_host_thread) {
      if (!host_thread_.joinable()) host_thread_ = std::thread([this] { run_host_functions(); });
      host_functions_.push_back(std::move(next));
      host_arrived_.notify_one();
      continue;
    }
    busy_ = true;
    lock.unlock();
    execute(next);
    finish(next);
    next = {};
    lock.lock();
  }
  lock.unlock();
  hooks_.on_end();
}

void Executor::run_host_functions() {
  host_function_running = true;
  std::unique_lock lock(mutex_);
  while (true) {
    host_arrived_.wait(lock, [&] { return stopping_ || !host_functions_.empty(); });
    if (stopping_) return;
    Next next = std::move(host_functions_.front());
    host_functions_.pop_front();
    host_busy_ = true;
    lock.unlock();
    execute(next);
    finish(next);
    next = {};
    lock.lock();
    host_busy_ = false;
    finished_.notify_all();
    arrived_.notify_one();
  }
}

void Executor::stop() {
  bool host_ended = true;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
    host_arrived_.notify_all();
    // A host function may wait for something that never comes now: a while is all it gets. One
    // that called exit is this very thread.
    if (host_thread_.get_id() == std::this_thread::get_id()) {
      host_ended = false;
    } else {
      host_ended = finished_.wait_for(lock, 500ms, [&] { return !host_busy_; });
    }
  }
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // a log reader called exit
  else if (thread_.joinable())
    thread_.join();
  if (host_thread_.joinable()) {
    if (host_ended)
      host_thread_.join();
    else
      host_thread_.detach();
  }
  std::lock_guard lock(mutex_);
  for (const auto& queue : active_)
    for (const auto& command : queue->waiting) command->done.store(true);
  finished_.notify_all();
}

}  // namespace ctxbroker::software
