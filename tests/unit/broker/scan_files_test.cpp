// SPDX-License-Identifier: Apache-2.0
// Where a scan looks, and what it refuses to look into.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "plugin/build_id.hpp"
#include "scan/library_files.hpp"
#include "scan/scan.hpp"

namespace ctxbroker {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ScanFilesTest : public ::testing::Test {
 public:
  ~ScanFilesTest() override {
    unsetenv("CTXBROKER_PLUGIN_PATH");
    fs::remove_all(root);
  }

 protected:
  ScanFilesTest() {
    std::string pattern = (fs::temp_directory_path() / "ctxb_files_XXXXXX").string();
    root = mkdtemp(pattern.data());
    options.standard = false;
    unsetenv("CTXBROKER_PLUGIN_PATH");
  }
  fs::path file(const std::string& name) const {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << "x";
    return root / name;
  }
  std::vector<fs::path> folders(bool elevated = false) {
    return detail::search_folders(options, elevated, notes);
  }

  fs::path root;
  ScanOptions options;
  std::vector<std::string> notes;
};

TEST_F(ScanFilesTest, FoldersAreFirstThenEnvironmentThenBesideThenStandard) {
  setenv("CTXBROKER_PLUGIN_PATH", "/env/a::/env/b/:/first:", 1);
  options.first = {"/first"};
  options.beside = {"/beside", "/env/b"};
  EXPECT_THAT(folders(), ElementsAre("/first", "/env/a", "/env/b", "/beside"));
  options.environment = false;
  EXPECT_THAT(folders(), ElementsAre("/first", "/beside", "/env/b"));
  options = {};
  setenv("HOME", "/home/somebody", 1);
  options.environment = false;
  EXPECT_THAT(folders(),
              ElementsAre("/home/somebody/.local/lib/ctxbroker/plugins",
                          "/usr/local/lib/ctxbroker/plugins", "/usr/lib/ctxbroker/plugins"));
}

TEST_F(ScanFilesTest, FilesAreSortedByFolderThenName) {
  const auto b = file("one/b.so"), a = file("one/a.so"), c = file("two/a.so");
  file("one/notes.txt");
  fs::create_directory(root / "two" / "folder.so");
  fs::create_symlink("nowhere", root / "two" / "link.so");
  std::vector<std::string> found;
  for (const auto& one :
       detail::library_files({root / "one", root / "absent", root / "two"}, false, notes)) {
    found.push_back(one.path.string() + (one.refusal.empty() ? "" : ": " + one.refusal));
  }
  EXPECT_THAT(found,
              ElementsAre(a.string(), b.string(), c.string(),
                          (root / "two/folder.so").string() + ": it is a folder, not a library",
                          HasSubstr("No such file")));
  EXPECT_THAT(notes, IsEmpty()) << "a folder that is not there is no mistake";
}

TEST_F(ScanFilesTest, AnElevatedHostTakesNothingThatEverybodyMayChange) {
  const auto open = file("plugins/open.so"), closed = file("plugins/closed.so");
  ::chmod(open.c_str(), 0666);
  ::chmod(closed.c_str(), 0644);
  const auto refusal = [&](bool elevated) {
    return detail::library_files({root / "plugins"}, elevated, notes).at(1).refusal;
  };
  EXPECT_EQ(refusal(false), "");
  EXPECT_THAT(refusal(true), HasSubstr("everybody may change it"));
  EXPECT_EQ(detail::library_files({root / "plugins"}, true, notes).at(0).refusal, "");

  setenv("CTXBROKER_PLUGIN_PATH", "/env/a", 1);
  options.first = {root / "plugins"};
  EXPECT_THAT(folders(true), ElementsAre(root / "plugins")) << "not that of the environment";
  ::chmod((root / "plugins").c_str(), 0777);
  EXPECT_THAT(folders(true), IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("everybody may write into it")));
  EXPECT_THAT(folders(false), ElementsAre(root / "plugins", "/env/a"));
  // A link does not help: what counts is where the file is.
  fs::create_directory(root / "links");
  fs::create_symlink(closed, root / "links/closed.so");
  EXPECT_THAT(detail::library_files({root / "links"}, true, notes).at(0).refusal,
              HasSubstr("everybody may change it"));
}

TEST_F(ScanFilesTest, ElevatedScanRunsNoFileThatEverybodyMayChange) {
  ::chmod(file("plugins/open.so").c_str(), 0666);
  options.first = {root / "plugins"};
  options.cache_file = root / "cache";
  options.progress = [](const ScanProgress&) {
    ADD_FAILURE() << "it is loaded";
    return false;
  };
  const ScanResult found = detail::scan_as(options, true);
  ASSERT_EQ(found.libraries.size(), 1U);
  EXPECT_EQ(found.libraries[0].state, LibraryState::could_not_load);
}

TEST_F(ScanFilesTest, ABuildIdIsReadFromWholeFilesOnly) {
  const std::string id = detail::build_id("/proc/self/exe");
  EXPECT_EQ(detail::build_id(file("text.so")), "");
  EXPECT_EQ(detail::build_id(root), "");
  EXPECT_EQ(detail::build_id(root / "none.so"), "");
  if (id.empty()) GTEST_SKIP() << "this program has no build-id";
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string head(4096, '\0');
  program.read(head.data(), static_cast<std::streamsize>(head.size()));
  // Cut or overwritten anywhere: an answer, and no crash.
  for (std::size_t at = 0; at < 1024; at += 9) {
    std::string damaged = head;
    damaged[at] = static_cast<char>(0xFF);
    std::ofstream(root / "d.so", std::ios::binary) << damaged.substr(0, at + 200);
    static_cast<void>(detail::build_id(root / "d.so"));
  }
}

}  // namespace
}  // namespace ctxbroker
