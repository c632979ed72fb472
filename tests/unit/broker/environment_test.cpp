// SPDX-License-Identifier: Apache-2.0
// The variables that the broker reads are those from before plug-ins came.
#include "process/environment.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "module/runtime_compiler.hpp"
#include "scan/choices.hpp"
#include "scan/library_files.hpp"
#include "scan/scan_cache.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Sets variables, and puts them back at the end.
class KeptEnvironmentTest : public testing::Test {
 public:
  ~KeptEnvironmentTest() override {
    for (const auto& [name, value] : before_) put(name, value);
  }

 protected:
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* const was = std::getenv(name.c_str());
    before_.try_emplace(name, was != nullptr ? std::optional<std::string>(was) : std::nullopt);
    put(name, value);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

std::vector<std::filesystem::path> folders_of_scan() {
  ScanOptions options;
  options.standard = false;
  std::vector<std::string> notes;
  return search_folders(options, false, notes);
}

TEST_F(KeptEnvironmentTest, WhatIsSetLaterChangesNothingUntilTheLastHolderEnds) {
  set("CTXB_TEST_VARIABLE", "before");
  set("CTXB_TEST_OTHER", std::nullopt);
  std::optional<KeptEnvironment> first(std::in_place), second(std::in_place);
  set("CTXB_TEST_VARIABLE", "after");
  set("CTXB_TEST_OTHER", "after");
  EXPECT_EQ(kept_variable("CTXB_TEST_VARIABLE"), "before");
  EXPECT_EQ(kept_secure_variable("CTXB_TEST_VARIABLE"), "before");
  EXPECT_FALSE(kept_variable("CTXB_TEST_OTHER").has_value());
  first.reset();
  EXPECT_EQ(kept_variable("CTXB_TEST_VARIABLE"), "before");
  second.reset();
  EXPECT_EQ(kept_variable("CTXB_TEST_VARIABLE"), "after");
  EXPECT_EQ(kept_secure_variable("CTXB_TEST_OTHER"), "after");
}

TEST_F(KeptEnvironmentTest, CompilerIsLookedForWhereItWasBefore) {
  set("CTXBROKER_NVRTC", std::nullopt);
  set("CUDA_HOME", "/before/home");
  set("CUDA_PATH", "/before/path");
  {
    const KeptEnvironment kept;
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) set(name, "/after");
    set("CTXBROKER_NVRTC", "/after/libnvrtc.so");
    const std::vector<std::string> places = compiler_candidates(13000);
    EXPECT_THAT(places, Contains("/before/home/lib64/libnvrtc.so.13"));
    EXPECT_THAT(places, Contains("/before/path/lib64/libnvrtc.so.13"));
    EXPECT_THAT(places, Not(Contains(testing::StartsWith("/after"))));
  }
  EXPECT_THAT(compiler_candidates(13000), ElementsAre("/after/libnvrtc.so")) << "the control";
  set("CTXBROKER_NVRTC", std::nullopt);
  EXPECT_THAT(compiler_candidates(13000), Contains("/after/lib64/libnvrtc.so.13"));
}

TEST_F(KeptEnvironmentTest, PluginsAndChoicesAreLookedForWhereTheyWereBefore) {
  set("CTXBROKER_PLUGIN_PATH", "/before/plugins");
  set("XDG_CONFIG_HOME", "/before/config");
  set("XDG_CACHE_HOME", std::nullopt);
  set("HOME", "/before/home");
  {
    const KeptEnvironment kept;
    for (const char* name :
         {"CTXBROKER_PLUGIN_PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME"}) {
      set(name, "/after");
    }
    EXPECT_THAT(folders_of_scan(), ElementsAre("/before/plugins"));
    EXPECT_EQ(default_choices(), "/before/config/ctxbroker/disabled.json");
    EXPECT_EQ(default_scan_cache().parent_path(), "/before/home/.cache/ctxbroker");
  }
  EXPECT_THAT(folders_of_scan(), ElementsAre("/after")) << "the control";
  EXPECT_EQ(default_choices(), "/after/ctxbroker/disabled.json");
  EXPECT_EQ(default_scan_cache().parent_path(), "/after/ctxbroker");
}

}  // namespace
}  // namespace ctxbroker::detail
