// SPDX-License-Identifier: Apache-2.0
// Standard error of the process, as it was when the process began.
#pragma once

#include <string>

#include "run.h"

namespace ctxbroker::launch {

class StandardError {
 public:
  explicit StandardError(const ctxb_run_start& start) noexcept : start_(start) {}

  // Lines begin with the process id too from now on.
  void name_process(int pid) { name_ = "ctxb-run[" + std::to_string(pid) + "]: "; }

  // Writes lines, each behind "ctxb-run: ". Writes nothing if the program has closed standard error
  // or has put something else in its place. No signal comes of a pipe without a reader. Any thread.
  void print(const std::string& text) const noexcept;

 private:
  bool is_still_there() const noexcept;
  const ctxb_run_start& start_;
  std::string name_ = "ctxb-run: ";
};

}  // namespace ctxbroker::launch
