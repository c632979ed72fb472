// SPDX-License-Identifier: Apache-2.0
// The settings that ctxb-run gives the processes of the program, as the JSON text of the variable
// CTXBROKER_RUN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/record.hpp"

namespace ctxbroker::launch {

constexpr const char* settings_variable = "CTXBROKER_RUN";

struct Settings {
  bool children = true;         // other processes than the first are covered too
  int pid = 0;                  // of the first process
  std::string version;          // of ctxb-run
  std::string policy;           // JSON text: see with_policy_of_run
  std::string report;           // absolute path; empty: none
  std::string trace;            // likewise
  std::optional<Severity> log;  // the least severity that is printed; unset: no record is
  bool verbose = false;
  std::optional<DriverChoice> driver;
  std::vector<std::string>
      command;  // the program, as it was named, and its arguments: see shortened
};

// Returns the beginning of a command that is too long for a variable of the environment. The last
// word is "..." then.
std::vector<std::string> shortened(const std::vector<std::string>& command);

// `children` and `pid` are the first members: ctxbroker_launch.so, which reads no JSON, looks at
// them.
std::string to_text(const Settings& settings);
// Throws std::runtime_error, which says what is wrong.
Settings parse_settings(const std::string& text);

// Returns nothing for a text that names no severity.
std::optional<Severity> parse_severity(const std::string& text) noexcept;

}  // namespace ctxbroker::launch
