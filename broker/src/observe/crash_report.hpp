// SPDX-License-Identifier: Apache-2.0
// What a fatal signal says of plug-ins: which one ran on the thread, or whose library's code.
#pragma once

#include <signal.h>

#include <cstdint>

namespace ctxbroker::detail {

// Where a plug-in's library lies, so that a crash on a thread of its own names it. `file` is of
// lasting(). Beyond 1024 libraries, more are not known. Any thread.
void add_library_code(std::uintptr_t begin, std::uintptr_t end, const char* file) noexcept;
void remove_library_code(std::uintptr_t begin) noexcept;

// The name of the first signal whose handler is no longer the broker's, of those not told before.
// Null: none. Cheap while crashes are not named. [main] thread.
const char* replaced_signal_handler() noexcept;

// A thread that overflows its stack needs another one for the handler. Does nothing while crashes
// are not named, or where the thread has one. Any thread.
void give_signal_stack() noexcept;

// Puts back the thread's signal stack that it had at the beginning. A plug-in that has set another
// one frees it sooner or later, and a crash of its neighbour would then end the process without a
// line. It makes two or three system calls, and none while crashes are not named.
class KeptSignalStack {
 public:
  KeptSignalStack() noexcept;
  ~KeptSignalStack();
  KeptSignalStack(const KeptSignalStack&) = delete;
  KeptSignalStack& operator=(const KeptSignalStack&) = delete;

 private:
  bool is_known_ = false;
  stack_t before_{};
};

}  // namespace ctxbroker::detail
