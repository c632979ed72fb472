// SPDX-License-Identifier: Apache-2.0
#include "api/executor.hpp"

#include <algorithm>
#include <utility>

#include "api/spin.hpp"
#include "api/status.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::software {
namespace {

using namespace std::chrono_literals;

// A hand-off to a sleeping thread costs tens of microseconds: the other side looks a short while
// before it sleeps, as the executor's threads do.
constexpr auto look_for_end = 20us;
bool all_done(const Executor::Commands& commands) {
  return std::all_of(commands.begin(), commands.end(), [](const auto& command) {
    return command->done.load(std::memory_order_acquire);
  });
}

bool is_ready(const Command& head) {
  return !head.started && all_done(head.after);
}

}  // namespace

Executor::Executor(Hooks hooks) : hooks_(std::move(hooks)) {}

Executor::~Executor() = default;

void Executor::enqueue(const std::shared_ptr<StreamQueue>& queue,
                       const std::shared_ptr<Command>& command,
                       const std::function<void()>& admit) {
  bool settled = false;
  {
    std::lock_guard lock(mutex_);
    admit();
    if (stopping_) fail(CUDA_ERROR_DEINITIALIZED);
    start_threads();
    add_order(*queue, command->after);
    command->serial = ++last_serial_;
    if (queue->waiting.empty()) active_.push_back(queue);
    queue->waiting.push_back(command);
    settled = settle();
    tell_threads();
  }
  if (settled) hooks_.on_finished();
}

// Adds the commands outside of the queue that the queue's next command has to wait for.
void Executor::add_order(const StreamQueue& queue, Commands& before) const {
  if (queue.ordering == Ordering::legacy) {
    Commands others = last_of_blocking(queue);
    before.insert(before.end(), others.begin(), others.end());
  } else if (queue.ordering == Ordering::blocking && !queue.legacy->waiting.empty()) {
    before.push_back(queue.legacy->waiting.back());
  }
  for (const Barrier& barrier : barriers_)
    if (barrier.group_or_family == queue.group || barrier.group_or_family == queue.family)
      before.push_back(barrier.command);
}

Executor::Commands Executor::ahead_of_new(const StreamQueue& queue) {
  std::lock_guard lock(mutex_);
  Commands before;
  add_order(queue, before);
  if (!queue.waiting.empty()) before.push_back(queue.waiting.back());
  std::erase_if(before, [](const auto& command) { return command->done.load(); });
  return before;
}

Executor::Commands Executor::last_of_blocking(const StreamQueue& queue) const {
  Commands last;
  for (const auto& other : active_)
    if (other->group == queue.group && other->ordering == Ordering::blocking)
      last.push_back(other->waiting.back());
  return last;
}

Executor::Commands Executor::pending(const StreamQueue& queue) {
  std::lock_guard lock(mutex_);
  Commands last;
  if (queue.ordering == Ordering::legacy) last = last_of_blocking(queue);
  if (!queue.waiting.empty()) last.push_back(queue.waiting.back());
  return last;
}

Executor::Commands Executor::pending_of_group(const void* group) {
  std::lock_guard lock(mutex_);
  Commands last;
  for (const auto& queue : active_)
    if (queue->group == group) last.push_back(queue->waiting.back());
  return last;
}

Executor::Commands Executor::pending_of_family(const void* family) {
  std::lock_guard lock(mutex_);
  Commands last;
  for (const auto& queue : active_)
    if (queue->family == family) last.push_back(queue->waiting.back());
  return last;
}

Executor::Commands Executor::pending_everywhere() {
  std::lock_guard lock(mutex_);
  Commands last;
  for (const auto& queue : active_) last.push_back(queue->waiting.back());
  return last;
}

Executor::Commands Executor::running_kernels_of_family(const void* family) {
  std::lock_guard lock(mutex_);
  Commands kernels;
  for (const auto& queue : active_) {
    const std::shared_ptr<Command>& head = queue->waiting.front();
    const bool runs = head->kind == Command::Kind::kernel && (head->started || is_ready(*head));
    if ((family == nullptr || queue->family == family) && runs) kernels.push_back(head);
  }
  return kernels;
}

Executor::Commands Executor::pending_users(const void* object) {
  std::lock_guard lock(mutex_);
  Commands users;
  for (const auto& queue : active_)
    for (const auto& command : queue->waiting)
      if (command->uses == object) users.push_back(command);
  return users;
}

void Executor::wait(const Commands& commands) {
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

void Executor::hold_back(const void* group_or_family, const std::shared_ptr<Command>& command) {
  std::lock_guard lock(mutex_);
  std::erase_if(barriers_, [](const Barrier& barrier) { return barrier.command->done.load(); });
  barriers_.push_back({group_or_family, command});
}

void Executor::retire(std::shared_ptr<void> object) {
  std::lock_guard lock(mutex_);
  if (running_ > 0) retired_.push_back(std::move(object));
}

void Executor::wake() {
  bool settled = false;
  {
    std::lock_guard lock(mutex_);
    settled = settle();
    tell_threads();
    if (waiters_ > 0) finished_.notify_all();  // it may have been no queue's
  }
  if (settled) hooks_.on_finished();
}

void Executor::pause() {
  std::lock_guard lock(mutex_);
  ++pauses_;
}

void Executor::resume() {
  std::lock_guard lock(mutex_);
  if (--pauses_ == 0) tell_threads();
}

bool Executor::executes_nothing() {
  std::lock_guard lock(mutex_);
  return running_ == 0;
}

// The queue whose head is ready, most urgent, and oldest; null.
const std::shared_ptr<StreamQueue>* Executor::find_ready(Wanted wanted) const {
  if (pauses_ > 0) return nullptr;
  bool kernels = wanted != Wanted::transfers && kernel_may_start();
  bool transfers = wanted != Wanted::kernels;
  const std::shared_ptr<StreamQueue>* best = nullptr;
  for (const auto& queue : active_) {
    const Command& head = *queue->waiting.front();
    bool mine = (transfers && head.kind == Command::Kind::transfer) ||
                (kernels && head.kind == Command::Kind::kernel);
    if (!mine || !is_ready(head)) continue;
    if (best == nullptr || queue->priority < (*best)->priority ||
        (queue->priority == (*best)->priority && head.serial < (*best)->waiting.front()->serial))
      best = &queue;
  }
  return best;
}

// Takes it, as the calling thread's to execute.
Executor::Next Executor::take_ready(Wanted wanted) {
  const std::shared_ptr<StreamQueue>* found = find_ready(wanted);
  if (found == nullptr) return {};
  Next next{*found, (*found)->waiting.front()};
  next.command->started = true;
  ++running_;
  if (next.command->kind == Command::Kind::kernel) {
    kernels_.push_back({next.command.get(), Command::Clock::now(), false});
    if (executing_lane() == 0) kernel_runs_ = true;
    transfer_arrived_.notify_one();  // it takes the transfers, and watches the time
  }
  return next;
}

bool Executor::kernel_may_start() const {
  return std::all_of(kernels_.begin(), kernels_.end(),
                     [](const RunningKernel& kernel) { return kernel.overdue; });
}

void Executor::mark_done(const std::shared_ptr<StreamQueue>& queue) {
  Command& command = *queue->waiting.front();
  command.after.clear();
  command.finished_at = Command::Clock::now();
  command.done.store(true, std::memory_order_release);
  queue->waiting.pop_front();
  if (waiters_ > 0) finished_.notify_all();
}

// Does what needs no thread of the device: markers that are reached are done, host functions handed
// over. True if any command was done.
bool Executor::settle() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < active_.size();) {
      const std::shared_ptr<StreamQueue> queue = active_[i];
      while (!queue->waiting.empty() && is_ready(*queue->waiting.front())) {
        const std::shared_ptr<Command> head = queue->waiting.front();
        if (head->kind == Command::Kind::marker) {
          mark_done(queue);
          again = any = true;
          continue;
        }
        if (head->kind == Command::Kind::host_function) {
          head->started = true;
          if (!host_.joinable()) {
            host_ = ctxbroker::detail::start_own_thread([this] { run_host_functions(); });
          }
          host_functions_.push_back({queue, head});
          host_arrived_.notify_one();
        }
        break;
      }
      if (queue->waiting.empty())
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }
  return any;
}

void Executor::tell_threads() {
  changes_.fetch_add(1, std::memory_order_release);
  if (first_sleeps_) arrived_.notify_one();
  if (kernel_runs_) transfer_arrived_.notify_one();
  call_relief();
}

void Executor::forget() {
  std::vector<std::shared_ptr<StreamQueue>> queues;
  std::deque<Next> host_functions;
  std::vector<std::shared_ptr<void>> retired;
  {
    std::lock_guard lock(mutex_);
    queues.swap(active_);
    host_functions.swap(host_functions_);
    retired.swap(retired_);
    barriers_.clear();
    // Each may be another's reason to wait: apart, so that no chain of them is freed in one go.
    for (const auto& queue : queues)
      for (const auto& command : queue->waiting) command->after.clear();
  }
  // A graph keeps its last launch, whose work keeps the graph.
  for (const Next& next : host_functions) next.command->work = nullptr;  // handed over, not begun
  for (const auto& queue : queues) {
    for (const auto& command : queue->waiting)
      if (!command->started) command->work = nullptr;
    queue->waiting.clear();
  }
}

bool Executor::has_waiters() {
  std::lock_guard lock(mutex_);
  return waiters_ > 0;
}

}  // namespace ctxbroker::software
