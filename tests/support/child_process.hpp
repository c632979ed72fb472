// SPDX-License-Identifier: Apache-2.0
// Tests that end CUDA in their process, or need another environment, run in a child: this program
// again, with one disabled test chosen.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ctxbroker {

struct ChildResult {
  int exit_code = -1;  // -1: it was ended by a signal
  std::string output;  // standard output and error
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The sanitizers have handlers of their own for signals. With these variables, a signal ends a
// child as it does without a sanitizer.
inline const Environment signals_stay_signals = {
    {"ASAN_OPTIONS",
     "handle_segv=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:handle_sigbus=0"},
    {"UBSAN_OPTIONS", "handle_segv=0"},
    {"TSAN_OPTIONS",
     "handle_segv=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:handle_sigbus=0"}};

// `test` is "Suite.DISABLED_Name"; `environment` is added to this process's.
ChildResult run_child(const std::string& test, const Environment& environment = {});

}  // namespace ctxbroker
