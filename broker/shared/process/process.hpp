// SPDX-License-Identifier: Apache-2.0
// Runs a child process with a deadline and collects its output.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ctxbroker::detail {

struct ProcessExit {
  int exit_status = -1;    // -1 when a signal ended the process
  int signal = 0;          // the signal that ended the process, or 0
  bool timed_out = false;  // the process was killed at its deadline
  std::string output;      // standard output and standard error together, at most 1 MiB
};

// Runs the program with an empty standard input and waits for its end. Throws
// std::system_error when the program cannot be started.
ProcessExit run_process(const std::filesystem::path& program,
                        const std::vector<std::string>& arguments,
                        std::chrono::milliseconds deadline);

}  // namespace ctxbroker::detail
