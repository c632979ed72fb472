// SPDX-License-Identifier: Apache-2.0
// Child processes. Tests that end CUDA in their process, or need another environment, run in one:
// this program again, with one disabled test chosen.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ctxbroker {

using Environment = std::vector<std::pair<std::string, std::string>>;

// The sanitizers have handlers of their own for signals. With these variables, a signal ends a
// child as it does without a sanitizer.
inline const Environment signals_stay_signals = {
    {"ASAN_OPTIONS",
     "handle_segv=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:handle_sigbus=0"},
    {"UBSAN_OPTIONS", "handle_segv=0"},
    {"TSAN_OPTIONS",
     "handle_segv=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:handle_sigbus=0"}};

struct ChildResult {
  int exit_code = -1;  // -1: it was ended by a signal
  int signal = 0;      // that ended it, or 0
  bool timed_out = false;
  std::string output;  // standard output, and standard error unless ChildStart has it elsewhere
  std::string errors;  // standard error if it is apart
};

enum class ChildErrors { with_output, apart, dropped };

struct ChildStart {
  std::vector<std::string> command;  // the program's path, and its arguments
  Environment environment;           // added to this process's, which goes without GTEST_ variables
  ChildErrors errors = ChildErrors::with_output;
};

class ChildProcess {
 public:
  explicit ChildProcess(const ChildStart& start);
  ~ChildProcess();  // kills the child if nothing has waited for it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const noexcept { return id_; }
  // Everything that was read so far.
  const std::string& output() const noexcept { return result_.output; }

  // Reads until `text` was written. False: the child has closed its output before, or has written
  // nothing for this long, and has timed out.
  bool read_until(const std::string& text, std::chrono::milliseconds silence);
  // Reads to the end of the output and waits for the child's end. Kills it after `limit`. Calls
  // `meanwhile` every few milliseconds.
  ChildResult wait(std::chrono::milliseconds limit = std::chrono::hours(24),
                   const std::function<void()>& meanwhile = {});
  // Waits for the child's end without reading on. Kills a child that has timed out.
  ChildResult end();

 private:
  bool is_open() const noexcept { return files_[0] >= 0 || files_[1] >= 0; }
  // Waits for output this long. False: nothing was written.
  bool read(std::chrono::milliseconds time);
  void close(int& file);

  pid_t id_ = 0;
  int files_[2] = {-1, -1};  // to read its output and its errors from
  ChildResult result_;
};

std::string this_program();  // its path
// This program again, for "Suite.DISABLED_Name".
ChildStart test_again(const std::string& test, const Environment& environment = {});
ChildResult run_child(const std::string& test, const Environment& environment = {});

}  // namespace ctxbroker
