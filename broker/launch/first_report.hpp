// SPDX-License-Identifier: Apache-2.0
// The files that a run writes.
#pragma once

#include <string>

#include "settings.hpp"

namespace ctxbroker::launch {

// Returns the absolute path of a file that is to be written. Throws Failure when its folder cannot
// be written to, or when something lies there that is no regular file. Empty stays empty.
std::string output_path(const std::string& option, const std::string& path);

// Throws Failure when a run would write a file over another one of its own. `policy` is the path of
// the policy file, or empty.
void check_outputs(const Settings& settings, const std::string& policy);

// Writes the report of a program that has not called the driver yet. It stays when the program
// never does, or is killed. Throws Failure.
void write_first_report(const Settings& settings);

}  // namespace ctxbroker::launch
