// SPDX-License-Identifier: Apache-2.0
// The files of a run, none of which may be lost to another one.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "graph_plan.hpp"
#include "options.hpp"
#include "session.hpp"

namespace ctxbroker::sample_host {

// Finds a file that is written and is also read, or written for something else, under whatever
// name: also by a link. Everything throws Failure (usage). Call it before anything is written.
class RunFiles {
 public:
  // Checks what the options and the plan name beside inputs and outputs. The plan is borrowed.
  RunFiles(const Options& options, const GraphPlan& plan);

  // Checks the inputs and outputs of the run, or of one frame of it, in the order of the ports. An
  // output may be an input, which is read before it is replaced.
  void check_ports(const std::vector<std::filesystem::path>& inputs,
                   const std::vector<std::filesystem::path>& outputs);
  // Checks what the chosen plug-ins read: their libraries, and the files that parameters name.
  void check_plugins(const Session& session);

 private:
  struct Place {
    std::string path;  // empty: it is there and is no regular file, which nothing replaces
    dev_t device = 0;
    ino_t node = 0;  // 0: it is not there
  };
  struct Named {
    std::string name;  // "--json"
    Place place;
    bool is_written = false;
  };

  Place place_of(const std::filesystem::path& file);
  void add(const std::string& name, const std::filesystem::path& file, bool is_written);
  void check_read(const std::filesystem::path& file);
  static bool is_same(const Place& a, const Place& b);

  const GraphPlan& plan_;
  std::vector<Named> named_;
  std::filesystem::path given_folder_, folder_;  // the last one, and where it is
};

// Returns the files of the ports.
std::vector<std::filesystem::path> files_of(const std::vector<PlannedPort>& ports);

}  // namespace ctxbroker::sample_host
