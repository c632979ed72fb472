// SPDX-License-Identifier: Apache-2.0
#include "observe/running.hpp"

#include <time.h>
#include <unistd.h>

#include <new>

#include "ctxbroker/running_call.hpp"
#include "observe/crash_report.hpp"

namespace ctxbroker::detail {
namespace {

std::atomic<RunningThread*> first{nullptr};

// Has no destructor, so it can be read after the releaser has ended.
constinit thread_local bool has_ended = false;

// Gives the entry back when the thread ends. What runs on the thread after that is not shown.
struct Releaser {
  RunningThread* entry = nullptr;
  ~Releaser() {
    has_ended = true;
    running_thread = nullptr;
    take_signal_stack();
    if (entry == nullptr) return;
    entry->show({});
    entry->thread.store(0, std::memory_order_release);
  }
};
thread_local Releaser releaser;

}  // namespace

constinit thread_local RunningThread* running_thread = nullptr;

std::uint64_t running_clock() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

RunningThread* running_threads() noexcept {
  return first.load(std::memory_order_acquire);
}

RunningThread* enter_running_thread() noexcept {
  if (has_ended) return nullptr;
  const pid_t self = gettid();
  RunningThread* entry = running_threads();
  for (; entry != nullptr; entry = entry->next) {
    pid_t nobody = 0;
    if (entry->thread.compare_exchange_strong(nobody, self, std::memory_order_acq_rel)) break;
  }
  if (entry == nullptr) {
    entry = new (std::nothrow) RunningThread;
    if (entry == nullptr) return nullptr;
    entry->thread.store(self, std::memory_order_relaxed);
    entry->next = first.load(std::memory_order_relaxed);
    while (!first.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel)) {
    }
  }
  releaser.entry = entry;
  running_thread = entry;
  give_signal_stack();
  return entry;
}

bool RunningThread::read(Running& running, pid_t& of) const noexcept {
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    const std::uint32_t before = version.load(std::memory_order_acquire);
    running = read_own();
    of = thread.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || version.load(std::memory_order_relaxed) != before) continue;
    return running.function != nullptr && of != 0;
  }
  return false;
}

}  // namespace ctxbroker::detail

namespace ctxbroker {

std::vector<RunningCall> running_calls() {
  std::vector<RunningCall> calls;
  const std::uint64_t now = detail::running_clock();
  const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
  for (auto* thread = detail::running_threads(); thread != nullptr; thread = thread->next) {
    detail::Running running;
    pid_t number = 0;
    if (!thread->read(running, number)) continue;
    const std::uint64_t passed = now > running.since ? now - running.since : 0;
    calls.push_back({text(running.plugin), text(running.library), text(running.function),
                     static_cast<std::uint64_t>(number), std::chrono::nanoseconds(passed)});
  }
  return calls;
}

}  // namespace ctxbroker
