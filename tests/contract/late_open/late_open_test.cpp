// Hosts that are themselves plug-ins of something, Python modules for one, open the broker's
// library late. What a library keeps per thread can be too much for that.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace {

TEST(LateOpen, TheBrokersLibraryCanBeOpenedByARunningProgram) {
  const auto program = std::filesystem::canonical("/proc/self/exe");
  const auto library = program.parent_path().parent_path() / "lib" / "libctxbroker.so";
  ASSERT_EQ(dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << "it was open before";
  void* opened = dlopen(library.c_str(), RTLD_NOW);
  EXPECT_NE(opened, nullptr) << dlerror();
}

}  // namespace
