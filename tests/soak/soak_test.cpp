// SPDX-License-Identifier: Apache-2.0
// The soak for seconds, and what it says when there is something to say.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/child_process.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

ChildResult soak(const std::string& arguments) {
  const auto program = std::filesystem::path(this_program()).parent_path() / "soak";
  ChildStart start{{"/bin/sh", "-c", "exec \"$0\" " + arguments, program}, {}};
  // Without a broker "libcuda.so.1" is found as on any machine; here that is the software device.
  if (driver_is_software()) {
    start.environment.emplace_back("LD_LIBRARY_PATH", software_device_folder());
  }
  return ChildProcess(start).wait();
}

TEST(Soak, EightPluginsForSecondsReachNobodyAndLeaveNothing) {
  const std::string file = testing::TempDir() + "ctxb_soak_test.json";
  const ChildResult result = soak("--plugins 8 --seconds 3 --json " + file);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto figures = nlohmann::json::parse(std::ifstream(file));
  std::remove(file.c_str());
  EXPECT_EQ(figures.at("wrong_outputs"), 0);
  for (const char* happened :
       {"jobs", "losses", "rebuilt", "attacks", "resets_absorbed", "strikes"}) {
    EXPECT_GT(figures.at(happened), 0) << happened << "\n" << result.output;
  }
  EXPECT_GT(figures.at("opened"), 16) << "tenants were closed and opened again";
}

TEST(Soak, WithoutABrokerTheDamageShows) {
  const ChildResult behaved = soak("--plugins 8 --seconds 1 --without-broker --behaved");
  EXPECT_EQ(behaved.exit_code, 0) << "the work itself is right: " << behaved.output;
  const ChildResult result = soak("--plugins 8 --seconds 1 --patience 10 --without-broker");
  EXPECT_THAT(result.output, HasSubstr("without a broker"));
  EXPECT_NE(result.exit_code, 0) << result.output;
}

TEST(Soak, StuckThreadIsNamedAndTheProcessEnds) {
  const ChildResult result = soak("--plugins 2 --seconds 1 --patience 2 --stuck");
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("thread 0: never returns, plug-in 0"));
}

}  // namespace
}  // namespace ctxbroker
