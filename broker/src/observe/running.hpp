// SPDX-License-Identifier: Apache-2.0
// Which functions of plug-ins run now, on which threads, since when. A signal handler reads it for
// its own thread, and others for all threads, so it has no locks and its texts stay for ever.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "observe/crash_report.hpp"

namespace ctxbroker::detail {

// The function of a wait for a plug-in's work, by its address.
inline constexpr char work_on_device[] = "work on the device";

// Whose function runs. The texts are of lasting(), or static.
struct Running {
  const char* plugin = nullptr;    // the plug-in's id; null: a function of the whole library
  const char* library = nullptr;   // its file
  const char* function = nullptr;  // "process"; null: none runs
  std::uint64_t since = 0;         // ns of running_clock
};

// A steady clock that is cheap and 4 ms exact.
std::uint64_t running_clock() noexcept;

// What a thread shows to another process. That process shares this memory and cannot follow
// pointers. Texts that are too long are cut. `function` is empty while no function runs.
struct RunningCopy {
  std::atomic<pid_t> thread{0};  // 0: no thread has it
  char plugin[124] = {}, library[256] = {}, function[64] = {};
};

// From now on, each thread that enters its first function gets one of `copies`, until all are
// taken. The memory is zero and stays for ever. Call it before plug-ins are loaded. If a forked
// process finds zeros in place of its thread's copy, it ends there as soon as a function of a
// plug-in begins or ends.
void copy_running_calls(RunningCopy* copies, std::size_t count) noexcept;

// What one thread shows to others. It is never freed, and another thread uses it after this one.
struct RunningThread {
  std::atomic<std::uint32_t> version{0};  // odd while the thread writes
  std::atomic<const char*> plugin{nullptr}, library{nullptr}, function{nullptr};
  std::atomic<std::uint64_t> since{0};
  std::atomic<pid_t> thread{0};  // the system's number; 0: no thread has it
  RunningThread* next = nullptr;
  std::atomic<RunningCopy*> copy{nullptr};  // the thread's own; null: none

  void show(const Running& running) noexcept;
  // By the thread itself.
  Running read_own() const noexcept;
  [[gnu::cold]] void show_copy(const Running& running) noexcept;
  // By any thread. False: it changes all the time, or nothing runs.
  bool read(Running& running, pid_t& of) const noexcept;
};

// "initial-exec" makes it one load, as thread_state: see there.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local RunningThread* running_thread;

// Gives the thread its entry. Allocates only beyond 256 threads. Null: there is no memory.
[[gnu::cold]] RunningThread* enter_running_thread() noexcept;

// Shows that a function runs on this thread, until its end, and keeps its signal stack. They nest.
// Takes no lock, and allocates nothing for the first 256 threads.
class RunningNote {
 public:
  RunningNote(const char* plugin, const char* library, const char* function) noexcept
      : thread_(running_thread != nullptr ? running_thread : enter_running_thread()) {
    if (thread_ == nullptr) return;
    outer_ = thread_->read_own();
    thread_->show({plugin, library, function, running_clock()});
  }
  ~RunningNote() {
    if (thread_ != nullptr) thread_->show(outer_);
  }
  RunningNote(const RunningNote&) = delete;
  RunningNote& operator=(const RunningNote&) = delete;

 private:
  RunningThread* thread_;
  Running outer_;
  KeptSignalStack signal_stack_;
};

inline void RunningThread::show(const Running& running) noexcept {
  const std::uint32_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  plugin.store(running.plugin, std::memory_order_relaxed);
  library.store(running.library, std::memory_order_relaxed);
  function.store(running.function, std::memory_order_relaxed);
  since.store(running.since, std::memory_order_relaxed);
  version.store(before + 2, std::memory_order_release);
  if (copy.load(std::memory_order_relaxed) != nullptr) show_copy(running);
}

inline Running RunningThread::read_own() const noexcept {
  return {plugin.load(std::memory_order_relaxed), library.load(std::memory_order_relaxed),
          function.load(std::memory_order_relaxed), since.load(std::memory_order_relaxed)};
}

}  // namespace ctxbroker::detail
