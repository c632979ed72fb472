// SPDX-License-Identifier: Apache-2.0
// Hosts that are themselves plug-ins of something, Python modules for one, open the broker's
// library late. What a library keeps per thread can be too much for that.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

namespace fs = std::filesystem;

fs::path built() {
  return fs::canonical("/proc/self/exe").parent_path().parent_path();
}

fs::path broker_library() {
  return built() / "lib" / "libctxbroker.so";
}

fs::path other_library(const std::string& model) {
  return built() / "test_plugins" / "late_open" / ("late_open_" + model + ".so");
}

// Returns how many bytes a loaded library keeps for each thread.
std::size_t bytes_per_thread(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return ~std::size_t{0};
  struct Search {
    ElfW(Addr) base;
    bool found = false;
    std::size_t bytes = 0;
  } search{map->l_addr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& sought = *static_cast<Search*>(data);
        if (info->dlpi_addr != sought.base) return 0;
        sought.found = true;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type == PT_TLS) sought.bytes += segment.p_memsz;
        }
        return 1;
      },
      &search);
  return search.found ? search.bytes : ~std::size_t{0};
}

// Those that came before have taken of the room for such values what they could get.
TEST(LateOpen, TheBrokersLibraryCanBeOpenedAfterManyThatKeepMuchPerThread) {
  ASSERT_EQ(dlopen(broker_library().c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr)
      << "it was open before";
  const fs::path folder =
      fs::temp_directory_path() / ("ctxb_late_open_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (int i = 0; i < 24; ++i) {
    const fs::path copy = folder / (std::to_string(i) + ".so");
    fs::copy_file(other_library("global-dynamic"), copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    auto* touch = reinterpret_cast<char* (*)()>(dlsym(library, "late_open_touch"));
    ASSERT_NE(touch, nullptr);
    EXPECT_EQ(*touch(), 1);
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  void* opened = dlopen(broker_library().c_str(), RTLD_NOW);
  ASSERT_NE(opened, nullptr) << dlerror();
  // glibc keeps 512 bytes for all libraries that come late (glibc.rtld.optional_static_tls).
  EXPECT_LE(bytes_per_thread(opened), 256u) << "a running program has little room left";
  EXPECT_GT(bytes_per_thread(opened), 0u) << "nothing was measured";
}

// The control: a library that wants 4 KiB of that room cannot be opened.
TEST(LateOpen, LibraryWithLargeStaticThreadStorageIsRefused) {
  EXPECT_EQ(dlopen(other_library("initial-exec").c_str(), RTLD_NOW), nullptr);
  const char* why = dlerror();
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::strstr(why, "static TLS"), nullptr) << why;
}

}  // namespace
