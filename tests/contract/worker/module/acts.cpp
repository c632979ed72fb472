// SPDX-License-Identifier: Apache-2.0
#include "acts.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <string>
#include <thread>

namespace ctxbroker::test {
namespace {

volatile int sink = 0;
volatile int* volatile nowhere = nullptr;

// NOLINTNEXTLINE(misc-no-recursion): it is to overflow the stack
int deeper(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : deeper(depth + 1) + room[0];
}

// The broker's own threads let only signals of faults through.
void hold_other_threads() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    for (;;) pause();
  };
  sigaction(SIGTRAP, &action, nullptr);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(task.path().filename());
    if (thread != gettid()) syscall(SYS_tgkill, getpid(), thread, SIGTRAP);
  }
}

}  // namespace

void perform(Act act) {
  switch (act) {
    case segfault:
      *nowhere = 1;
      return;
    case aborts:
      std::abort();
    case exit_0:
      std::exit(0);
    case exit_3:
      std::exit(3);
    case overflow:
      sink = deeper(0);
      return;
    case kills_itself:
      kill(getpid(), SIGKILL);
      return;
    case stops_itself:
      kill(getpid(), SIGSTOP);
      return;
    case endless:
      for (;;) sink = sink + 1;
    case deadlock: {
      static std::timed_mutex mutex;
      mutex.lock();
      while (!mutex.try_lock_for(std::chrono::hours(1))) {
      }
      return;
    }
    case holds_others:
      hold_other_threads();
      std::this_thread::sleep_for(std::chrono::hours(1));
      return;
    case allocates:
      [&]() noexcept {
        // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): what happens then is the test
        for (;;) std::memset(new char[1 << 20], 1, 1 << 20);
      }();
      return;
    case mallocs:
      for (;;) std::memset(std::malloc(1 << 20), 1, 1 << 20);
    case reserves: {
      void* volatile taken = nullptr;  // or the compiler leaves the allocations out
      do taken = std::malloc(1 << 20);
      while (taken != nullptr);
      std::abort();
    }
    case forks_and_ends:
      if (fork() == 0) {
        setsid();  // out of the worker's group, with the socket in its hand
        sleep(2);
        _exit(0);
      }
      _exit(5);
    case ends_alone:
    case ends_alone_7:
      syscall(SYS_exit, act == ends_alone ? 0 : 7);
      return;
    case closes_all:
      for (int i = 0; i < 256; ++i) close(i);
      sleep(1);
      return;
    case makes_siblings:
      for (const bool stays : {false, true}) {
        if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr) != 0) {
          continue;
        }
        while (stays) pause();  // NOLINT(bugprone-infinite-loop): until it is killed
        _exit(0);
      }
      return;
    default:
      return;
  }
}

}  // namespace ctxbroker::test
