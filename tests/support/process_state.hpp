// SPDX-License-Identifier: Apache-2.0
// Counts what this process holds of the operating system, for tests that look for drift.
#pragma once

#include <cstddef>

namespace ctxbroker {

struct ProcessState {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
};

ProcessState process_state();

// Threads that were told to end take a moment: waits a while until there are no more than
// `threads`; the state then.
ProcessState settled_process_state(std::size_t threads);

}  // namespace ctxbroker
