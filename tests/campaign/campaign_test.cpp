// SPDX-License-Identifier: Apache-2.0
// The campaign with each fault CAMPAIGN_EACH times.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ctxbroker {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* patience = " --timeout 12000";
#else
constexpr const char* patience = "";
#endif

TEST(Campaign, FaultsStopNobodyButTheirOwner) {
  const auto bin = std::filesystem::canonical("/proc/self/exe").parent_path();
  const std::string command = "\"" + (bin / "campaign").string() + "\" --seed 1 --each " +
                              std::to_string(CAMPAIGN_EACH) + patience;
  const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << command;
}

}  // namespace
}  // namespace ctxbroker
