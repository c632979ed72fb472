// SPDX-License-Identifier: Apache-2.0
// What goes wrong in the campaign, and what has to be said about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/worker.hpp"

namespace ctxbroker::campaign {

// The code that causes the fault.
enum class Doer {
  plugin,  // a function of the plug-in
  kernel,  // the plug-in's kernel
  kills,   // this program: a SIGKILL while the plug-in is in a job
  stops,   // this program: likewise, a SIGSTOP
};

// The parts that the error and the WorkerExit have to name. Every error also names the worker,
// which has one plug-in.
enum class Named {
  function,  // the plug-in, its library and its function
  kernel,    // the plug-in and its kernel
  plugin,    // the plug-in
  worker,    // no more than the worker, because a broken channel can say anything
};

// The effect of the fault on plug-ins of the same process, which is the positive control.
enum class Damage {
  process_ends,    // the process ends, or stands still
  all_stop,        // CUDA ends for all plug-ins, or a driver ends the process
  some_stop,       // only some stop. No fault is to do that
  thread_is_lost,  // the calling thread does not return. What the others do is only reported
  none,
};

struct Fault {
  const char* name;  // for tables and for --faults
  Doer doer;
  const char* parameter;  // of the fixture `hostile`, with its value
  const char* value;
  std::vector<WorkerExitCause> causes;
  Named named;
  Damage damage;
};

const std::vector<Fault>& all_faults();
// nullptr: there is none of this name.
const Fault* find_fault(const std::string& name);
// Why this build cannot show it; empty when it can.
std::string why_left_out(const Fault& fault);

}  // namespace ctxbroker::campaign
