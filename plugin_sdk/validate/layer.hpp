// SPDX-License-Identifier: Apache-2.0
// A layer between the broker and the plug-in, in the validator's own process. After a library is
// loaded, the layer replaces the create function of its factory, and the functions of every
// instance that this makes. So it sees every call in both directions, can lend the plug-in memory
// of its own with guard bands around it, and can let a call of the host's fail.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "watch.hpp"

namespace ctxbroker::validate {

// How the layer treats the jobs and calls that follow.
struct Plan {
  bool lends = false;        // guarded copies of the job's buffers, and a look at them afterwards
  bool has_gaps = false;     // rows of the lent buffers do not follow each other
  bool holds = false;        // the stream stands still until process has returned, and the inputs
                             // arrive only a moment later
  std::uint32_t poison = 0;  // what lent outputs hold before the call
  // For each output, the input whose lent copy it gets; -1 and beyond the end: none.
  std::vector<int> in_place{};
  // The number, from now on, of the host's allocation that answers that memory is short; 0: none.
  std::uint64_t failing_allocation = 0;
};

// What the layer found.
enum class Mishap {
  guard_band,     // bytes around a lent buffer changed
  row_gap,        // bytes between its rows changed
  input_changed,  // an input changed
  waited,         // process returned only when the stream went on
  refused,        // a function of the host's refused a call
  called,         // the plug-in called the host where it must not: after a loss
  internal,       // the validator's own driver call failed
};
struct Finding {
  Mishap mishap;
  std::string text;
};

// What the plug-in did since the last reset.
struct Seen {
  std::uint64_t jobs = 0;      // calls of process
  std::uint64_t answered = 0;  // those that returned CTXB_OK
  std::uint64_t bypassed = 0;
  std::uint64_t allocations = 0;  // calls of the host's allocate
  std::uint64_t losses = 0;       // calls of context_lost
  Watched process;                // the sum of all calls of process
  std::vector<Finding> findings;
};

// Replaces create in the factory of a library that the broker has just loaded.
void attach(const std::filesystem::path& library);

// Not while a job runs.
void set_plan(const Plan& plan);
Seen take_seen();  // and resets it

// The first finding of that kind, or an empty text.
std::string first_of(const Seen& seen, Mishap mishap);

}  // namespace ctxbroker::validate
