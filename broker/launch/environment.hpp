// SPDX-License-Identifier: Apache-2.0
// The environment in which the program runs.
#pragma once

#include <string>
#include <vector>

#include "settings.hpp"

namespace ctxbroker::launch {

// The files of an installation that go into the program's processes.
struct OwnFiles {
  std::string folder;    // lib/ctxbroker: absolute
  std::string launcher;  // in it: ctxbroker_launch.so
  std::string gate;      // in it: ctxbroker_gate.so
};

// Throws Failure, which names the file that is missing, or the driver that is none.
OwnFiles find_own_files(const Settings& settings);

// Returns the variables ("NAME=VALUE") of this process, with those that a run needs.
std::vector<std::string> make_environment(const OwnFiles& files, const Settings& settings);

// Puts `entries` in front of a list of the loader's, and takes them out of the rest of it.
std::string put_in_front(const std::vector<std::string>& entries, const std::string& list,
                         const char* separators);

}  // namespace ctxbroker::launch
