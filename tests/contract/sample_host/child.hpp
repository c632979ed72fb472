// SPDX-License-Identifier: Apache-2.0
// The real sample_host as a child process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/child_process.hpp"

namespace ctxbroker::sample_host::test {

using Ended = ChildResult;

struct Start {
  std::vector<std::string> arguments;      // behind the program's name
  Environment environment;                 // added to this process's
  std::string wrapper;                     // shell text run before, "ulimit -f 1"; may be empty
  std::string interrupt_when;              // SIGINT as soon as a file whose name ends so is there,
  std::filesystem::path interrupt_folder;  // in this folder
};

// Where this test program stands: bin/ of a build or a bundle.
std::filesystem::path program_folder();

// Runs sample_host to its end (killed after 100 s). Without CTXBROKER_DRIVER in the environment it
// runs on the software device.
Ended run_sample_host(const Start& start);

}  // namespace ctxbroker::sample_host::test
