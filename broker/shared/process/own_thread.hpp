// SPDX-License-Identifier: Apache-2.0
// Threads that the library starts. A new thread inherits the floating-point control and the signal
// mask of the thread that starts it, and that may be in a plug-in's call, which has changed them.
// So every thread of the library starts here; scripts.own_threads checks that.
#pragma once

#include <csignal>
#include <cstdint>
#include <thread>
#include <utility>

#include "process/float_control.hpp"

namespace ctxbroker::detail {

enum class Signals : std::uint8_t {
  blocked,    // those that other code can send: they are for the host's threads
  inherited,  // a plug-in's code runs on the thread, and its child processes inherit the mask
};

inline void begin_own_thread(Signals signals) noexcept {
  FloatControl::usual().set();
  if (signals == Signals::inherited) return;
  sigset_t blocked;
  ::sigfillset(&blocked);
  // The thread's own faults, which the host's handlers report.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&blocked, fault);
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

// Throws std::system_error if the system has no thread.
template <typename Run>
std::thread start_own_thread(Run run, Signals signals = Signals::blocked) {
  return std::thread([run = std::move(run), signals]() mutable {
    begin_own_thread(signals);
    run();
  });
}

}  // namespace ctxbroker::detail
