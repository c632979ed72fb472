// SPDX-License-Identifier: Apache-2.0
// A thousand files, a tenth of which is bad: the scan is complete, the host is untouched, and what
// was done before the host ended is not done again.
#include <sys/stat.h>

#include <csignal>
#include <map>
#include <set>

#include "scan_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* folder_variable = "CTXB_SCAN_TEST_FOLDER";

class ManyLibrariesTest : public ScanTest {
 protected:
  // 900 sound ones, 50 that crash, 20 that hang, 30 that are none.
  void fill() const {
    const auto link = [&](const std::string& library, int index) {
      fs::create_symlink(test_library(library), name(index));
    };
    int index = 0;
    const std::string sound = text_of(test_library("unloadable"));
    while (index < 1000) {
      const int place = index % 100;  // each hundred has its share
      if (place < 5) {
        link("scan_crashes", index);
      } else if (place < 7) {
        link("scan_hangs", index);
      } else if (place == 7) {
        write_text(name(index), index % 200 < 100 ? sound.substr(0, sound.size() / 2) : "garbage");
      } else if (place == 8) {
        ::mkfifo(name(index).c_str(), 0644);
      } else if (place == 9) {
        fs::create_directory(name(index));
      } else {
        link("unloadable", index);
      }
      ++index;
    }
  }

  fs::path name(int index) const {
    std::string digits = std::to_string(index);
    return folder / ("plugin" + std::string(3 - digits.size(), '0') + digits + ".so");
  }

  static ScanOptions hasty(ScanOptions options) {
    options.at_once = 16;
    options.deadline = std::chrono::seconds(2);
    return options;
  }

  static std::map<LibraryState, int> states(const ScanResult& found) {
    std::map<LibraryState, int> count;
    for (const ScannedLibrary& library : found.libraries) ++count[library.state];
    return count;
  }
};

const std::map<LibraryState, int> expected = {{LibraryState::enabled, 900},
                                              {LibraryState::crashed, 50},
                                              {LibraryState::hung, 20},
                                              {LibraryState::could_not_load, 30}};

// Ends in the middle of a scan, as if it were killed.
TEST(ManyLibraries, DISABLED_HostScansAndDies) {
  const char* const root = std::getenv(folder_variable);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(root, nullptr);
  ScanOptions options;
  options.first = {fs::path(root) / "plugins"};
  options.environment = options.standard = false;
  options.cache_file = fs::path(root) / "cache/scan.jsonl";
  options.at_once = 16;
  options.deadline = std::chrono::seconds(2);
  options.progress = [](const ScanProgress& progress) {
    if (progress.done >= 500) std::raise(SIGKILL);
    return true;
  };
  static_cast<void>(scan(options));
}

TEST_F(ManyLibrariesTest, ManyLibrariesAreScannedThoughTheHostEndsHalfWay) {
  fill();
  EXPECT_EQ(
      run_child("ManyLibraries.DISABLED_HostScansAndDies", {{folder_variable, root}}).exit_code,
      -1);
  const std::string kept = text_of(options().cache_file);
  int lines = 0;
  for (int index = 0; index < 1000; ++index) {
    lines += kept.find("\"" + name(index).string() + "\"") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(lines, 480) << "20 files of the first 500 need not be looked into";

  std::set<fs::path> loaded;
  ScanOptions asked = hasty(options());
  asked.progress = [&](const ScanProgress& progress) {
    if (progress.begins) loaded.insert(progress.library);
    return true;
  };
  const ScanResult found = scan(asked);
  EXPECT_TRUE(found.complete);
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_EQ(states(found), expected);
  EXPECT_EQ(loaded.size(), static_cast<std::size_t>(980 - lines)) << "nothing is done twice";
  for (const fs::path& path : loaded) {
    EXPECT_EQ(kept.find("\"" + path.string() + "\""), std::string::npos) << path;
  }
  // In order, whoever was done first.
  ASSERT_EQ(found.libraries.size(), 1000U);
  for (int index = 0; index < 1000; ++index) {
    EXPECT_EQ(found.libraries[static_cast<std::size_t>(index)].path, name(index));
  }
  EXPECT_EQ(found.plugins().size(), 1U) << "all have one id";
  EXPECT_EQ(found.duplicates.size(), 899U);
  EXPECT_EQ(found.plugins()[0]->library_path, name(10));
  const std::string maps = text_of("/proc/self/maps");
  EXPECT_THAT(maps, Not(HasSubstr("test_plugins")));

  const ScanResult again = scan(asked);
  EXPECT_EQ(loaded.size(), static_cast<std::size_t>(980 - lines)) << "all of it is known";
  EXPECT_EQ(states(again), expected);
}

}  // namespace
}  // namespace ctxbroker
