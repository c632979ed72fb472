// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "exit_code.hpp"
#include "settings.hpp"

namespace ctxbroker::launch::test {
namespace {

using testing::Contains;
using testing::StartsWith;

TEST(LaunchEnvironmentTest, EntriesStandInFrontAndOnlyOnce) {
  EXPECT_EQ(put_in_front({"a", "b"}, "", ":"), "a:b");
  EXPECT_EQ(put_in_front({"a", "b"}, "c", ":"), "a:b:c");
  EXPECT_EQ(put_in_front({"a", "b"}, "b:c:a", ":"), "a:b:c");
  EXPECT_EQ(put_in_front({"a"}, "c d:e", ": "), "a:c:d:e");
}

// For the loader, an empty entry of LD_LIBRARY_PATH is the working folder.
TEST(LaunchEnvironmentTest, EmptyEntriesStay) {
  EXPECT_EQ(put_in_front({"a"}, "c::d", ":"), "a:c::d");
  EXPECT_EQ(put_in_front({"a"}, "c:", ":"), "a:c:");
}

TEST(LaunchEnvironmentTest, FolderWithABlankIsSearchedInsteadOfNamed) {
  ::setenv("LD_PRELOAD", "/x.so", 1);  // NOLINT(concurrency-mt-unsafe)
  const OwnFiles files{"/a b/ctxbroker", "/a b/ctxbroker/ctxbroker_launch.so",
                       "/a b/ctxbroker/ctxbroker_gate.so"};
  Settings settings;
  settings.policy = "{}";
  const auto variables = make_environment(files, settings);
  ::unsetenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(variables, Contains("LD_PRELOAD=ctxbroker_launch.so:ctxbroker_gate.so:/x.so"));
  EXPECT_THAT(variables,
              Contains(StartsWith("LD_LIBRARY_PATH=/a b/ctxbroker/gate:/a b/ctxbroker")));
}

Settings all_settings() {
  Settings settings;
  settings.children = false;
  settings.pid = 17;
  settings.version = "0.1.0";
  settings.policy = R"({"schema":"ctxbroker.policy/1"})";
  settings.report = "/r.json";
  settings.trace = "/t.json";
  settings.log = Severity::debug;
  settings.verbose = true;
  settings.driver = DriverChoice::nvidia;
  settings.command = {"program", "an argument", "\"children\":false"};
  return settings;
}

TEST(LaunchSettingsTest, AreReadAsTheyWereWritten) {
  const Settings written = all_settings();
  const Settings settings = parse_settings(to_text(written));
  EXPECT_EQ(settings.children, written.children);
  EXPECT_EQ(settings.pid, written.pid);
  EXPECT_EQ(settings.policy, written.policy);
  EXPECT_EQ(settings.report, written.report);
  EXPECT_EQ(settings.trace, written.trace);
  EXPECT_EQ(settings.log, written.log);
  EXPECT_EQ(settings.verbose, written.verbose);
  EXPECT_EQ(settings.driver, written.driver);
  EXPECT_EQ(settings.command, written.command);
}

// ctxbroker_launch.so reads the beginning of the text.
TEST(LaunchSettingsTest, BeginWithWhatIsSaidOfChildrenAndTheFirstProcess) {
  Settings settings = all_settings();
  EXPECT_THAT(to_text(settings), StartsWith("{\"children\":false,\"pid\":17,"));
  settings.children = true;
  EXPECT_THAT(to_text(settings), StartsWith("{\"children\":true,\"pid\":17,"));
}

// A variable of the environment is limited, and the program may be given more than that.
TEST(LaunchSettingsTest, LongCommandIsCut) {
  const std::vector<std::string> brief{"program", "x"};
  EXPECT_EQ(shortened(brief), brief);
  const std::vector<std::string> many(100'000, "argument");
  const auto kept = shortened(many);
  EXPECT_LT(kept.size(), 1'000);
  EXPECT_EQ(kept.front(), "argument");
  EXPECT_EQ(kept.back(), "...");
}

TEST(LaunchSettingsTest, PolicyThatIsTooLargeIsRefused) {
  Settings settings;
  settings.policy = "[\"" + std::string(200'000, 'x') + "\"]";
  EXPECT_THROW(make_environment({}, settings), Failure);
}

TEST(LaunchSettingsTest, TextThatIsNoneOfTheirsIsRefused) {
  for (const char* text : {"", "{", "[]", "{\"schema\": \"other/1\"}"}) {
    EXPECT_THROW(parse_settings(text), std::runtime_error) << text;
  }
}

}  // namespace
}  // namespace ctxbroker::launch::test
