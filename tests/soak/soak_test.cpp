// SPDX-License-Identifier: Apache-2.0
// The soak for seconds, and what it says when there is something to say.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

struct Result {
  int status = -1;  // -1: ended by a signal
  std::string output;
};

Result soak(const std::string& arguments) {
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path() / "soak";
  std::string command = "\"" + program.string() + "\" " + arguments + " 2>&1";
  // Without a broker "libcuda.so.1" is found as on any machine; here that is the software device.
  if (driver_is_software()) {
    command = "LD_LIBRARY_PATH=\"" + software_device_folder().string() + "\" " + command;
  }
  Result result;
  std::FILE* const pipe = popen(("exec env " + command).c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) result.output += piece.data();
  const int ended = pclose(pipe);
  if (WIFEXITED(ended)) result.status = WEXITSTATUS(ended);
  return result;
}

TEST(Soak, EightPluginsForSecondsReachNobodyAndLeaveNothing) {
  const std::string file = testing::TempDir() + "ctxb_soak_test.json";
  const Result result = soak("--plugins 8 --seconds 3 --json " + file);
  EXPECT_EQ(result.status, 0) << result.output;
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
  const Result behaved = soak("--plugins 8 --seconds 1 --without-broker --behaved");
  EXPECT_EQ(behaved.status, 0) << "the work itself is right: " << behaved.output;
  const Result result = soak("--plugins 8 --seconds 1 --patience 10 --without-broker");
  EXPECT_THAT(result.output, HasSubstr("without a broker"));
  EXPECT_NE(result.status, 0) << result.output;
}

TEST(Soak, AThreadThatDoesNotGoOnIsNamedAndTheProcessEnds) {
  const Result result = soak("--plugins 2 --seconds 1 --patience 2 --stuck");
  EXPECT_EQ(result.status, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("thread 0: never returns, plug-in 0"));
}

}  // namespace
}  // namespace ctxbroker
