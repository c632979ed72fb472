// SPDX-License-Identifier: Apache-2.0
// Finds a program, and says whether a library can be preloaded into it.
#pragma once

#include <string>
#include <vector>

namespace ctxbroker::launch {

// A program that can be run and protected.
struct Program {
  std::string path;  // to execute
  bool is_script = false;
  // A script's interpreters, and the programs that env becomes, in the order in which they run.
  std::vector<std::string> run_by;
};

// Looks for the program as a shell does: by its path, or in the folders of PATH. Throws Failure
// (not_found, cannot_run).
std::string find_program(const std::string& name);

// Finds a command's program, and looks at it, at the interpreters of a script, and at what env
// becomes. Throws Failure (not_found, cannot_run), which says why it cannot be executed or
// protected, and what to do instead.
Program examine_program(const std::vector<std::string>& command);

// Returns a path of a driver that the program's file holds, as one that opens the driver by its
// path does. Empty: it holds none.
std::string driver_path_in(const std::string& file);

}  // namespace ctxbroker::launch
