// SPDX-License-Identifier: Apache-2.0
// The limits on the files that the broker reads: a file with one byte too many is refused unread.
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "allocations.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "ctxbroker/policy.hpp"
#include "ctxbroker/preset.hpp"
#include "json/document.hpp"
#include "limits/limits.hpp"
#include "scan/choices.hpp"
#include "scan/scan_cache.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct LimitedFile {
  const limits::Limit* limit;
  const char* name;
  // Reads the file, and returns what is said about it.
  std::function<std::string(const fs::path&)> trouble;
};

std::string what_is_said(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  } catch (const json::DocumentError& error) {
    return error.what();
  }
  return {};
}

std::string trouble_of_cache(const fs::path& file) {
  std::vector<std::string> notes;
  const detail::ScanCache cache(file, notes);
  EXPECT_TRUE(cache.entries().empty());
  return notes.empty() ? std::string() : notes.front();
}

const LimitedFile limited_files[] = {
    {&limits::policy_file, "policy.json",
     [](const fs::path& file) {
       return what_is_said([&] { static_cast<void>(read_policy(file)); });
     }},
    {&limits::preset_file, "preset.json",
     [](const fs::path& file) {
       return what_is_said([&] { static_cast<void>(read_preset(file)); });
     }},
    {&limits::manifest_file, "plugin.ctxb.json",
     [](const fs::path& file) { return read_manifest(file.parent_path() / "plugin.so").trouble; }},
    {&limits::disabled_file, "disabled.json",
     [](const fs::path& file) { return what_is_said([&] { detail::read_disabled(file); }); }},
    {&limits::cache_file, "scan.jsonl", trouble_of_cache}};

// Takes no room on the disk.
void make_sparse(const fs::path& file, std::uintmax_t bytes) {
  write_bytes(file, "");
  fs::resize_file(file, bytes);
}

TEST(FileLimits, FileWithOneByteTooManyIsRefusedUnread) {
  const TempFolder folder;
  for (const LimitedFile& one : limited_files) {
    SCOPED_TRACE(one.limit->name);
    const fs::path file = folder / one.name;
    make_sparse(file, one.limit->most + 1);
    const std::uint64_t before = test::allocated_bytes;
    EXPECT_THAT(one.trouble(file), AllOf(HasSubstr("\"" + file.string() + "\""),
                                         HasSubstr(limits::beyond(*one.limit))));
    EXPECT_LT(test::allocated_bytes - before, 64 * limits::kib);
  }
}

// A control. Those of more bytes would take long.
TEST(FileLimits, FileAtItsLimitIsRead) {
  const TempFolder folder;
  for (const LimitedFile& one : limited_files) {
    if (one.limit->most > 16 * limits::mib) continue;
    SCOPED_TRACE(one.limit->name);
    const fs::path file = folder / one.name;
    make_sparse(file, one.limit->most);
    const std::uint64_t before = test::allocated_bytes;
    EXPECT_THAT(one.trouble(file), AllOf(HasSubstr(file.string()), Not(HasSubstr("the limit"))));
    EXPECT_GE(test::allocated_bytes - before, one.limit->most);
  }
}

// The next scan writes it.
TEST(FileLimits, CacheThatIsTooLargeIsWrittenAnew) {
  const TempFolder folder;
  const fs::path file = folder / "scan.jsonl";
  make_sparse(file, limits::cache_file.most + 1);
  EXPECT_THAT(trouble_of_cache(file), HasSubstr("the limit cache_file"));
  EXPECT_LT(fs::file_size(file), limits::kib);
  EXPECT_EQ(trouble_of_cache(file), "");
}

}  // namespace
}  // namespace ctxbroker
