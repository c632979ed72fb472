// SPDX-License-Identifier: Apache-2.0
// How the system runs a thread: its processors, its policy and its nice value. Threads and
// processes that a thread starts inherit it.
#pragma once

#include <sched.h>
#include <sys/resource.h>

namespace ctxbroker::detail {

class Scheduling {
 public:
  // That of the calling thread.
  Scheduling() noexcept : policy_(::sched_getscheduler(0)), nice_(::getpriority(PRIO_PROCESS, 0)) {
    static_cast<void>(::sched_getparam(0, &parameters_));
    if (::sched_getaffinity(0, sizeof processors_, &processors_) != 0) CPU_ZERO(&processors_);
  }

  // Gives it to the calling thread, as far as the system allows that.
  void apply() const noexcept {
    if (policy_ >= 0) static_cast<void>(::sched_setscheduler(0, policy_, &parameters_));
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, nice_));
    if (CPU_COUNT(&processors_) != 0) {
      static_cast<void>(::sched_setaffinity(0, sizeof processors_, &processors_));
    }
  }

 private:
  int policy_, nice_;
  sched_param parameters_{};
  cpu_set_t processors_{};
};

}  // namespace ctxbroker::detail
