// SPDX-License-Identifier: Apache-2.0
// How ctxb-run ends when it does not run the program, or when it ends the program before its first
// driver call. The codes are those that env, nice and timeout use, so that scripts can tell them
// from the program's own.
#pragma once

#include <stdexcept>
#include <string>

namespace ctxbroker::launch {

// The values are part of the command line's contract and never change their meaning.
enum class ExitCode : int {
  ok = 0,
  failed = 125,      // ctxb-run itself: options, policy, files, the broker
  cannot_run = 126,  // the program was found and cannot be run, or cannot be protected
  not_found = 127,   // there is no such program
};

// Ends ctxb-run. what() names the thing and says what to do.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

}  // namespace ctxbroker::launch
