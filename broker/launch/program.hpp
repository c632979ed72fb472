// SPDX-License-Identifier: Apache-2.0
// Finds a program, and says whether a library can be preloaded into it.
#pragma once

#include <string>
#include <vector>

namespace ctxbroker::launch {

// A program that can be run and protected.
struct Program {
  std::string path;                 // to execute
  std::vector<std::string> run_by;  // a script's interpreters, outermost first
};

// Looks for the program as a shell does: by its path, or in the folders of PATH. Throws Failure
// (not_found, cannot_run).
std::string find_program(const std::string& name);

// Looks at a program that was found, and at the interpreters of a script. Throws Failure
// (cannot_run), which says why it cannot be executed or protected, and what to do instead.
Program examine_program(const std::string& path);

// Returns a path of a driver that the program's file holds, as one that opens the driver by its
// path does. Empty: it holds none.
std::string driver_path_in(const std::string& file);

}  // namespace ctxbroker::launch
