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
  const char* name;  // "input"
  const char* meaning;
};

// Every code once, in order: what --help and the documents print.
std::span<const ExitCodeRow> exit_codes() noexcept;

// The code for an error that the broker threw.
ExitCode exit_code_of(ErrorKind kind) noexcept;

// Error::Origin::call of a lost context that was the end of the plug-ins' process (--isolate), of
// one that ended because a job took longer than --job-timeout, and of one that a fault on the
// device ended.
constexpr const char* worker_process = "worker process";
constexpr const char* late_worker_process = "late worker process";
constexpr const char* faulted_worker_process = "faulted worker process";

// Returns whether work on the device has faulted. Then it can be that of any job in flight,
// whichever the host was waiting for.
bool is_fault(const Error& error) noexcept;

// What a person can do about an error of the broker; empty where the error's own text says it.
std::string next_step(const Error& error);

// Ends the command: what() is printed as it is, so it names the thing and says what to do. Control
// characters that came from a file or an argument are in it as "\x1b".
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message);
  // Of an error of the broker: its text, with what to do. `where` goes before it.
  explicit Failure(const Error& error, const std::string& where = {});
  // The same failure, with its place before it.
  Failure(const Failure& failure, const std::string& where);
  ExitCode code() const noexcept { return code_; }
  // For the report: the broker's kind of error ("context-lost"), or the exit code's ("input"); and
  // the library that it is about, or an empty text.
  const std::string& kind() const noexcept { return kind_; }
  const std::string& tenant() const noexcept { return tenant_; }

 private:
  ExitCode code_;
  std::string kind_ = {}, tenant_ = {};
};

// The system's text for an errno value: "No such file or directory".
std::string errno_text(int error);

}  // namespace ctxbroker::sample_host
