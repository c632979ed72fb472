// SPDX-License-Identifier: Apache-2.0
// Runs tests in child processes and tells how they ended.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trial.hpp"

namespace ctxbroker::validate {

struct Options {
  std::filesystem::path file;
  int strictness = 5;
  std::uint64_t seed = 1;
  std::vector<std::string> only;     // ids of tests, or what they begin with; empty: all
  std::vector<std::string> plugins;  // ids or short names; empty: all of the library
  std::string driver;                // empty: CTXBROKER_DRIVER decides
  std::chrono::seconds deadline{60};
  unsigned jobs = 1;  // children at once
};

struct Result {
  const Test* test = nullptr;
  std::string plugin{};  // empty: the file or the library
  Outcome outcome = Outcome::pass;
  std::string text{};    // why, for all but pass
  std::string output{};  // the end of what the child printed, for crash and hang
  double seconds = 0;
  nlohmann::json notes = nlohmann::json::object();
};

// Runs one test in this process. What the test throws ends here, except for what is no answer about
// the plug-in (a driver that cannot be opened): CannotRun.
struct Answer {
  Outcome outcome = Outcome::pass;
  std::string text{};
};
Answer run_here(const Test& test, Trial& trial);
// Prints the answer for the parent process.
void tell_parent(const Answer& answer, const Trial& trial);

// Runs one test in a child process. Throws std::system_error when none can be started.
Result run_in_child(const Options& options, const Test& test, const std::string& plugin);

// Runs the ladder up to the strictness. `done` is told of each result, in the order of the ladder
// for each plug-in. Throws CannotRun when the driver cannot be used, and when the library loads and
// has none of the plug-ins that were asked for.
std::vector<Result> run_ladder(const Options& options,
                               const std::function<void(const Result&)>& done);

// The command that repeats a test in the foreground.
std::string reproduce_line(const Options& options, const Result& result);

// Thrown for what says nothing about a plug-in: no driver, for example.
class CannotRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ctxbroker::validate
