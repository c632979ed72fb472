// SPDX-License-Identifier: Apache-2.0
#include "gate/loaded_objects.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

// Opens a copy of a library through a link. The test changes what the link leads to.
class LinkedLibrary : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy_file(test_library("attacks_dlsym"), folder / "real.so");
    fs::copy_file(test_library("attacks_dlsym"), folder / "other.so");
    fs::create_symlink("real.so", link);
    library = dlopen(link.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();  // NOLINT(concurrency-mt-unsafe)
  }
  void TearDown() override {
    if (library != nullptr) dlclose(library);
  }

  std::string file(bool is_named) const {
    std::vector<LoadedObject> all = loaded_objects();
    if (is_named) name_files(all);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.path == link; });
    return found != all.end() ? real_file(*found) : "not loaded";
  }
  std::string at(const char* name) const { return fs::canonical(folder.path()) / name; }

  TempFolder folder;
  const std::string link = (folder / "link.so").string();
  void* library = nullptr;
};

TEST_F(LinkedLibrary, FileIsTheRealOne) {
  EXPECT_EQ(file(true), at("real.so"));
  EXPECT_EQ(file(false), at("real.so"));
}

TEST_F(LinkedLibrary, FileIsTheOneThatWasLoadedAfterTheLinkLeadsElsewhere) {
  fs::remove(link);
  fs::create_symlink("other.so", link);
  EXPECT_EQ(file(true), at("real.so"));
  EXPECT_EQ(file(false), at("other.so")) << "a control: the path itself says no better";
}

TEST_F(LinkedLibrary, FileKeepsItsNameWhenItIsGone) {
  fs::remove(folder / "real.so");
  EXPECT_EQ(file(true), at("real.so"));
}

TEST_F(LinkedLibrary, ProgramHasNoFileName) {
  std::vector<LoadedObject> all = loaded_objects();
  name_files(all);
  EXPECT_EQ(all.front().file, "");
}

}  // namespace
}  // namespace ctxbroker::detail
