// Tools that are in this process beside the gate: profilers, checkers, debuggers, interposers.
#pragma once

#include <string>
#include <vector>

namespace ctxbroker::detail {

// Each in words: what it is, how it came, and what follows for the protection. [main] thread.
// Throws std::bad_alloc.
std::vector<std::string> tools_in_process();

}  // namespace ctxbroker::detail
