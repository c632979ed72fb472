// SPDX-License-Identifier: Apache-2.0
// The real sample_host as a child process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ctxbroker::sample_host::test {

struct Ended {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;      // which one, or 0
  bool timed_out = false;
  std::string out, err;  // everything it wrote
};

struct Start {
  std::vector<std::string> arguments;      // behind the program's name
  std::vector<std::string> environment;    // "NAME=value" above this process's, "NAME" removes it
  std::string wrapper;                     // shell text run before, "ulimit -f 1"; may be empty
  std::string interrupt_when;              // SIGINT as soon as a file whose name ends so is there,
  std::filesystem::path interrupt_folder;  // in this folder
};

// ctxbroker::signals_stay_signals, for Start::environment.
extern const std::vector<std::string> signals_stay_signals;

// Where this test program stands: bin/ of a build or a bundle.
std::filesystem::path program_folder();

// Runs sample_host to its end (killed after 100 s). Without CTXBROKER_DRIVER in the environment it
// runs on the software device.
Ended run_sample_host(const Start& start);

}  // namespace ctxbroker::sample_host::test
