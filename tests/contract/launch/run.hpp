// SPDX-License-Identifier: Apache-2.0
// Runs a small program that knows nothing of the broker, under ctxb-run and without it.
#pragma once

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/child_process.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::launch::test {

class RunTest : public testing::Test {
 protected:
  void SetUp() override;

  std::string at(const std::string& name) const { return (folder / name).string(); }
  // Paths of what is built beside this test.
  static std::string program();
  static std::string ctxb_run();
  static std::string own_library(const std::string& name);  // in lib/ctxbroker
  static std::string neighbour(const std::string& name = "launch_neighbour");

  // Runs ctxb-run with these arguments.
  ChildResult run(const std::vector<std::string>& arguments, Environment environment = {}) const;
  // Runs the program under ctxb-run with these options.
  ChildResult run_program(std::vector<std::string> options, const std::vector<std::string>& deeds,
                          const Environment& environment = {}) const;
  // The control: the program by itself.
  ChildResult run_alone(const std::vector<std::string>& deeds) const;

  // Reads a report, which has to fit the schema.
  nlohmann::json report(const std::string& name = "report.json") const;

  TempFolder folder;
};

}  // namespace ctxbroker::launch::test
