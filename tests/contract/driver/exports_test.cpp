// SPDX-License-Identifier: Apache-2.0
// The software device's exported names: all the driver's names and its test controls, and no other.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

struct Row {
  const char* symbol;
  const char* base;
  int version;
  bool per_thread;
};
constexpr Row rows[] = {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) \
  {#symbol, #base, version, (per_thread) != 0},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
};

std::set<std::string> expected_names() {
  std::set<std::string> names;
  for (const Row& row : rows) {
    if (row.version <= driver_version()) names.insert(row.symbol);
  }
  return names;
}

// Returns the names that the library defines for others, from its dynamic symbol table.
std::set<std::string> exported_names(void* library) {
  link_map* map = nullptr;
  EXPECT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
  }
  std::set<std::string> names;
  // The string table follows the symbol table: there is no count of symbols.
  auto end = reinterpret_cast<const ElfW(Sym)*>(strings);
  for (const ElfW(Sym)* symbol = symbols; symbol + 1 <= end; ++symbol)
    if (symbol->st_shndx != SHN_UNDEF && symbol->st_name != 0)
      names.insert(strings + symbol->st_name);
  return names;
}

TEST(Exports, ExportedNamesAreTheDriversAndTheControls) {
  CTXB_REQUIRE_DEVICE();
  std::set<std::string> expected = expected_names();
  EXPECT_EQ(expected.size(), 672u);
  for (const char* control :
       {"ctxb_software_ask_owner", "ctxb_software_call_count", "ctxb_software_fail_call",
        "ctxb_software_failed_call", "ctxb_software_fault", "ctxb_software_restart",
        "ctxb_software_start_counting", "ctxb_software_stop_counting"})
    expected.insert(control);
  EXPECT_EQ(exported_names(driver().library), expected);
}

// Every row of the table, looked up: at its own version it is the answer, for the default stream it
// is for, and one version earlier it is not.
TEST(Exports, EveryExportIsFoundByNameVersionAndDefaultStream) {
  CTXB_REQUIRE_DEVICE();
  for (const Row& row : rows) {
    if (row.version > driver_version()) continue;
    cuuint64_t flags = row.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                      : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void *at = nullptr, *before = nullptr, *symbol = dlsym(driver().library, row.symbol);
    ASSERT_NE(symbol, nullptr) << row.symbol;
    EXPECT_EQ(driver().cuGetProcAddress_v2(row.base, &at, row.version, flags, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(at, symbol) << row.symbol;
    EXPECT_EQ(driver().cuGetProcAddress_v2(row.base, &before, row.version - 1, flags, nullptr),
              CUDA_SUCCESS);
    EXPECT_NE(before, symbol) << row.symbol;
  }
}

// A driver of CUDA 13.0 has no trace of these.
TEST(Exports, FunctionOfALaterCudaIsNotThere) {
  CTXB_REQUIRE_DEVICE();
  for (const Row& row : rows) {
    if (row.version <= driver_version()) continue;
    EXPECT_EQ(dlsym(driver().library, row.symbol), nullptr) << row.symbol;
    void* at = nullptr;
    CUdriverProcAddressQueryResult result{};
    EXPECT_EQ(driver().cuGetProcAddress_v2(row.base, &at, driver_version(), 0, &result),
              CUDA_SUCCESS);
    if (std::string(row.symbol) == row.base) {
      EXPECT_EQ(result, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << row.symbol;
    }
  }
}

TEST(Exports, UnimplementedCallAnswersNotSupported) {
  CTXB_REQUIRE_DEVICE();
  using Unknown = CUresult (*)();
  for (const char* name : {"cuImportExternalMemory", "cuTexObjectCreate", "cuGetExportTable"}) {
    auto call = reinterpret_cast<Unknown>(dlsym(driver().library, name));
    ASSERT_NE(call, nullptr) << name;
    EXPECT_EQ(call(), CUDA_ERROR_NOT_SUPPORTED) << name;
  }
}

TEST(Exports, DriversFileNameOpensTheSameLibrary) {
  CTXB_REQUIRE_DEVICE();
  auto alias =
      std::filesystem::path(software_device_path()).parent_path() / "software_device/libcuda.so.1";
  void* library = dlopen(alias.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(dlsym(library, "cuInit"), dlsym(driver().library, "cuInit"));
}

}  // namespace
}  // namespace ctxbroker::test
