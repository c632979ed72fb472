// SPDX-License-Identifier: Apache-2.0
// Starts child processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxbroker::detail {

// Owns one descriptor.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    descriptor_ = other.release();
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const noexcept { return descriptor_; }
  int release() noexcept { return std::exchange(descriptor_, -1); }
  void close() noexcept;

 private:
  int descriptor_;
};

struct ChildOptions {
  int input = -1;             // becomes standard input; -1: an empty one
  int output = -1;            // becomes standard output and standard error
  int lent = -1;              // becomes descriptor 3
  bool nothing_else = false;  // the child gets no other descriptor, and a process group of its own
  std::optional<std::vector<std::string>> environment;  // "NAME=VALUE"; unset: kept_environment()
};

// Starts the program. The caller waits for its end. Throws std::system_error when the program
// cannot be started.
pid_t start_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                  const ChildOptions& options);

// Waits for the end of a process; false at the deadline. The status is that of waitpid, or -1 when
// somebody else in this process has waited for it.
bool wait_for_end(pid_t child, std::chrono::steady_clock::time_point deadline, int& status);

// Ends the process group of a child that was not waited for (0: there is none), and every process
// that has been left to this one, which has to be a subreaper (PR_SET_CHILD_SUBREAPER). Returns how
// many were left. For a process with one thread.
std::size_t end_what_is_left(pid_t child);

}  // namespace ctxbroker::detail
