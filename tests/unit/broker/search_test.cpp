// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "ctxbroker/error.hpp"
#include "plugin/library_file.hpp"

namespace ctxbroker {
namespace {

namespace fs = std::filesystem;

class SearchTest : public ::testing::Test {
 public:
  ~SearchTest() override { fs::remove_all(root); }

 protected:
  SearchTest() {
    std::string pattern = (fs::temp_directory_path() / "ctxb_search_XXXXXX").string();
    root = mkdtemp(pattern.data());
  }
  fs::path file(const std::string& name) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << "x";
    return root / name;
  }

  fs::path root;
};

TEST_F(SearchTest, ALibrarysNameIsItsTenants) {
  EXPECT_EQ(detail::library_name("/x/libblur.so"), "blur");
  EXPECT_EQ(detail::library_name("blur.so"), "blur");
  EXPECT_EQ(detail::library_name("blur.so.1.2"), "blur");
  EXPECT_EQ(detail::library_name("lib.so"), "lib");
}

TEST_F(SearchTest, OneFileIsOneFileWhateverThePath) {
  const auto plain = file("a.so");
  fs::create_symlink(plain, root / "link.so");
  fs::create_hard_link(plain, root / "hard.so");
  const auto id = [](const fs::path& path) {
    return detail::file_id(detail::canonical_library(path));
  };
  EXPECT_EQ(id(plain), id(root / "link.so"));
  EXPECT_EQ(id(plain), id(root / "hard.so"));
  EXPECT_EQ(id(plain), id(root / "." / "a.so"));
  EXPECT_NE(id(plain), id(file("b.so")));
}

TEST_F(SearchTest, FileThatIsNoLibraryIsRefused) {
  try {
    detail::canonical_library(root / "none.so");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::plugin_not_found);
  }
  try {
    detail::load_library(detail::canonical_library(file("text.so")));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::plugin_load);
    EXPECT_THAT(error.what(), testing::HasSubstr("file too short"));
  }
  EXPECT_THROW(detail::canonical_library(root), Error);
  EXPECT_THROW(detail::load_library("/proc/self/exe"), Error);
}

}  // namespace
}  // namespace ctxbroker
