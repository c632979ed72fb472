// SPDX-License-Identifier: Apache-2.0
// The files that a run writes.
#pragma once

#include <string>
#include <vector>

#include "settings.hpp"

namespace ctxbroker::launch {

// Returns the absolute path of a file that is to be written. Throws Failure when its folder cannot
// be written to, or when something lies there that is no regular file. Empty stays empty.
std::string output_path(const std::string& option, const std::string& path);

// A file that a run needs.
struct Input {
  std::string path;  // empty: there is none
  std::string what;  // "the program that is to run"
};

// Throws Failure when a run would write a file over one that it needs, by whatever name or link, or
// over the other one that it writes.
void check_outputs(const Settings& settings, const std::vector<Input>& inputs);

// Writes the report of a program that has not called the driver yet. It stays when the program
// never does, or is killed. Throws Failure.
void write_first_report(const Settings& settings);

}  // namespace ctxbroker::launch
