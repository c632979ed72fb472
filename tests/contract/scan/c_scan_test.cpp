// SPDX-License-Identifier: Apache-2.0
// The same from C.
#include "ctxbroker/host_scan.h"
#include "scan_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class CScanTest : public ScanTest {
 public:
  ~CScanTest() override {
    if (found != nullptr) {
      EXPECT_EQ(ctxb_scan_end(found), CTXB_OK);
    }
  }

 protected:
  CScanTest() {
    given.size = sizeof given;
    given.first = folders;
    given.without_environment = given.without_standard = 1;
    given.cache_file = cache.c_str();
    given.choices_file = choices.c_str();
  }
  void scan_again() {
    if (found != nullptr) ctxb_scan_end(found);
    ASSERT_EQ(ctxb_scan_run(&given, &found), CTXB_OK) << ctxb_last_error();
  }
  ctxb_scanned_library library(std::uint32_t index) const {
    ctxb_scanned_library info{};
    info.size = sizeof info;
    EXPECT_EQ(ctxb_scan_library(found, index, &info), CTXB_OK) << ctxb_last_error();
    return info;
  }

  std::string first = folder.string(), cache = (root / "cache.jsonl").string(),
              choices = (root / "choices.json").string();
  const char* folders[2] = {first.c_str(), nullptr};
  ctxb_scan_options given{};
  ctxb_scan* found = nullptr;
};

TEST_F(CScanTest, FindsPluginsAndSaysWhatIsWrongWithOthers) {
  put("scan_exits", "a.so");
  const fs::path sound = put("unloadable", "b.so");
  int begun = 0;
  given.progress_data = &begun;
  given.progress = [](void* data, std::uint64_t, std::uint64_t total, const char* library,
                      std::uint32_t begins) -> std::uint32_t {
    EXPECT_EQ(total, 2U);
    EXPECT_THAT(library, HasSubstr(".so"));
    *static_cast<int*>(data) += static_cast<int>(begins);
    return 1;
  };
  scan_again();
  EXPECT_EQ(begun, 2);
  ASSERT_EQ(ctxb_scan_library_count(found), 2U);
  EXPECT_EQ(library(0).state, static_cast<std::uint32_t>(CTXB_LIBRARY_CRASHED));
  EXPECT_THAT(library(0).reason, HasSubstr("status 0"));
  EXPECT_EQ(library(0).strikes, 1U);
  EXPECT_EQ(library(1).state, static_cast<std::uint32_t>(CTXB_LIBRARY_ENABLED));
  EXPECT_EQ(library(1).plugin_count, 1U);
  ctxb_plugin_info plugin{};
  plugin.size = sizeof plugin;
  ASSERT_EQ(ctxb_scan_plugin(found, 1, 0, &plugin), CTXB_OK);
  EXPECT_STREQ(plugin.id, "com.example.test.small");
  EXPECT_EQ(plugin.output_count, 1U);
  ctxb_found_plugin small{};
  small.size = sizeof small;
  ASSERT_EQ(ctxb_scan_find(found, "small", &small), CTXB_OK);
  EXPECT_EQ(small.library, 1U);
  EXPECT_EQ(small.library_path, sound);
  std::string json;
  const auto take = [](void* data, const char* text, std::uint64_t bytes) -> ctxb_status {
    static_cast<std::string*>(data)->append(text, bytes);
    return CTXB_OK;
  };
  ASSERT_EQ(ctxb_scan_write(found, take, &json), CTXB_OK);
  EXPECT_THAT(json, HasSubstr("\"state\": \"crashed\""));
}

TEST_F(CScanTest, LibraryIsDisabledAndEnabledAgain) {
  const std::string sound = put("unloadable", "b.so").string();
  ASSERT_EQ(ctxb_scan_set_enabled(sound.c_str(), 0, &given), CTXB_OK);
  scan_again();
  EXPECT_EQ(library(0).state, static_cast<std::uint32_t>(CTXB_LIBRARY_DISABLED));
  ASSERT_EQ(ctxb_scan_set_enabled(sound.c_str(), 1, &given), CTXB_OK);
  scan_again();
  EXPECT_EQ(library(0).state, static_cast<std::uint32_t>(CTXB_LIBRARY_ENABLED));
}

TEST_F(CScanTest, WrongArgumentsAreRefused) {
  ctxb_scanned_library info{};
  info.size = sizeof info;
  ctxb_found_plugin plugin{};
  plugin.size = sizeof plugin;
  EXPECT_EQ(ctxb_scan_run(&given, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_scan_end(nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_scan_library_count(nullptr), 0U);
  given.at_once = 65;
  EXPECT_EQ(ctxb_scan_run(&given, &found), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("at_once"));
  given.at_once = 0;
  given.safe = 2;
  EXPECT_EQ(ctxb_scan_run(&given, &found), CTXB_ERROR_INVALID_ARGUMENT);
  given.safe = 1;
  scan_again();
  EXPECT_EQ(ctxb_scan_library(found, 0, &info), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_scan_find(found, "blur", &plugin), CTXB_ERROR_UNAVAILABLE);
  EXPECT_EQ(ctxb_scan_set_enabled(nullptr, 1, &given), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_scan_set_enabled("", 1, &given), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("path is empty"));
}

}  // namespace
}  // namespace ctxbroker
