// SPDX-License-Identifier: Apache-2.0
// A process that dies slowly, as on a GPU while the driver gives back what it has there.
#pragma once

#include <sys/types.h>

namespace ctxbroker {

// Seizes a thread of the process besides its main one, as a debugger does. When such a thread has
// ended, it stays until its tracer has waited for it, so the system cannot end the process before.
class HeldProcess {
 public:
  explicit HeldProcess(int process);
  ~HeldProcess() { release(); }
  HeldProcess(const HeldProcess&) = delete;
  HeldProcess& operator=(const HeldProcess&) = delete;

  // Stops the process, which cannot answer any more.
  void stop() const;
  // Waits until the thread has ended, so the process has to be dying.
  void release();
  int process() const { return process_; }

 private:
  int process_;
  pid_t thread_ = 0;
};

// Tells whether there is such a process, which may be dying or a zombie.
bool exists(int process);
// Waits for the end of that, at most 20 s.
bool goes(int process);

}  // namespace ctxbroker
