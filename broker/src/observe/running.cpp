// SPDX-License-Identifier: Apache-2.0
#include "observe/running.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>

#include "ctxbroker/running_call.hpp"
#include "observe/crash_report.hpp"

namespace ctxbroker::detail {
namespace {

// Enough for most processes, so that the first job of an audio thread allocates nothing.
constexpr std::size_t made_ahead = 256;
constinit std::array<RunningThread, made_ahead> entries{};
constinit std::atomic<RunningThread*> more{nullptr};
constinit std::atomic<RunningCopy*> all_copies{nullptr};
constinit std::atomic<std::size_t> copy_count{0};

template <typename Use>
void for_each_running_thread(const Use& use) {
  for (RunningThread& entry : entries) use(entry);
  for (RunningThread* entry = more.load(std::memory_order_acquire); entry != nullptr;
       entry = entry->next) {
    use(*entry);
  }
}

bool has_ended(pid_t thread) noexcept {
  return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

// An entry for which `may_take` is true, given the thread that has it. Threads do not give theirs
// back, because that would take a destructor, for which the C library allocates.
template <typename MayTake>
RunningThread* take(pid_t self, const MayTake& may_take) noexcept {
  RunningThread* found = nullptr;
  for_each_running_thread([&](RunningThread& entry) {
    pid_t owner = entry.thread.load(std::memory_order_relaxed);
    if (found != nullptr || !may_take(owner)) return;
    if (entry.thread.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) {
      found = &entry;
    }
  });
  return found;
}

// A copy for this thread, or null.
RunningCopy* take_copy(pid_t self) noexcept {
  RunningCopy* const copies = all_copies.load(std::memory_order_acquire);
  for (const bool of_ended : {false, true}) {
    for (std::size_t i = 0; i < copy_count.load(std::memory_order_relaxed); ++i) {
      pid_t owner = copies[i].thread.load(std::memory_order_relaxed);
      if (owner != 0 && owner != self && !(of_ended && has_ended(owner))) continue;
      if (copies[i].thread.compare_exchange_strong(owner, self)) return &copies[i];
    }
  }
  return nullptr;
}

template <std::size_t Size>
void copy_text(char (&to)[Size], const char* from) noexcept {
  std::size_t i = 0;
  for (; from != nullptr && from[i] != '\0' && i + 1 < Size; ++i) to[i] = from[i];
  to[i] = '\0';
}

}  // namespace

constinit thread_local RunningThread* running_thread = nullptr;

void copy_running_calls(RunningCopy* copies, std::size_t count) noexcept {
  all_copies.store(copies, std::memory_order_release);
  copy_count.store(count, std::memory_order_release);
}

// The process can end at any moment, so a function's name stands there only beside whole texts.
void RunningThread::show_copy(const Running& running) noexcept {
  RunningCopy* const shown = copy.load(std::memory_order_relaxed);
  // A thread keeps its copy, so this one is in a forked process, whose memory is zero again.
  if (shown->thread.load(std::memory_order_relaxed) == 0) _exit(0);
  shown->function[0] = '\0';
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (running.function == nullptr) return;
  copy_text(shown->plugin, running.plugin);
  copy_text(shown->library, running.library);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  copy_text(shown->function, running.function);
}

std::uint64_t running_clock() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

RunningThread* enter_running_thread() noexcept {
  const int error = errno;
  const pid_t self = gettid();
  RunningThread* entry = take(self, [&](pid_t owner) { return owner == self || owner == 0; });
  if (entry == nullptr) entry = take(self, has_ended);
  if (entry == nullptr) {
    entry = new (std::nothrow) RunningThread;
    if (entry == nullptr) return nullptr;
    entry->thread.store(self, std::memory_order_relaxed);
    entry->next = more.load(std::memory_order_relaxed);
    while (!more.compare_exchange_weak(entry->next, entry, std::memory_order_acq_rel)) {
    }
  }
  entry->copy.store(take_copy(self), std::memory_order_relaxed);
  entry->show({});
  running_thread = entry;
  give_signal_stack();
  errno = error;
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
  detail::for_each_running_thread([&](const detail::RunningThread& thread) {
    detail::Running running;
    pid_t number = 0;
    if (!thread.read(running, number)) return;
    const std::uint64_t passed = now > running.since ? now - running.since : 0;
    calls.push_back({text(running.plugin), text(running.library), text(running.function),
                     static_cast<std::uint64_t>(number), std::chrono::nanoseconds(passed)});
  });
  return calls;
}

}  // namespace ctxbroker
