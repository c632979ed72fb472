// SPDX-License-Identifier: Apache-2.0
// How sample_host ends: its exit codes, and the exception that carries one.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "ctxbroker/error.hpp"

namespace ctxbroker::sample_host {

// The values are part of the command line's contract and never change their meaning.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  input = 3,
  output = 4,
  plugin = 5,
  driver = 6,
  kernel_image = 7,
  needs_gpu = 8,
};

struct ExitCodeRow {
  ExitCode code;
  const char* meaning;
};

// Every code once, in order: what --help and the documents print.
std::span<const ExitCodeRow> exit_codes() noexcept;

// The code for an error that the broker threw.
ExitCode exit_code_of(ErrorKind kind) noexcept;

// The error's text, and what to do about it if that is a matter of options.
std::string explained(const Error& error);

// Ends the command: what() is printed as it is, so it names the thing and says what to do.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// The system's text for an errno value: "No such file or directory".
std::string errno_text(int error);

}  // namespace ctxbroker::sample_host
