// A process that is started, listened to, and ended at its deadline. The operating system's part of
// this room.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ctxbroker::detail {

struct ProcessEnd {
  int exit_status = -1;    // -1 when it did not end by itself
  int signal = 0;          // which one ended it, or 0
  bool timed_out = false;  // it was killed at the deadline
  std::string output;      // standard output and standard error together, at most 1 MiB
};

// Throws Error (invalid_argument) when the program cannot be started. Its standard input is empty.
ProcessEnd run_process(const std::filesystem::path& program,
                       const std::vector<std::string>& arguments,
                       std::chrono::milliseconds deadline);

}  // namespace ctxbroker::detail
