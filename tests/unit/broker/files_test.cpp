// SPDX-License-Identifier: Apache-2.0
// Files that others have named.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <string>

#include "json/document.hpp"
#include "observe/regular_file.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct ReadFileTest : ::testing::Test {
  static constexpr std::size_t most = 1 << 20;
  const TempFolder folder;
  const std::filesystem::path file = folder / "file";
};

TEST_F(ReadFileTest, WholeContentIsRead) {
  const std::string bytes(300'000, 'x');
  write_bytes(file, bytes);
  EXPECT_EQ(read_regular_file(file, most).bytes, bytes);
  EXPECT_EQ(read_regular_file(file, bytes.size()).bytes, bytes);
  write_bytes(file, "");
  const FileReading empty = read_regular_file(file, most);
  EXPECT_EQ(empty.bytes, "");
  EXPECT_EQ(empty.trouble, "");
  EXPECT_THAT(read_regular_file("/proc/self/status", most).bytes, StartsWith("Name:"));
}

TEST_F(ReadFileTest, FileThatIsMissingOrNoRegularFileIsRefusedWithoutWaiting) {
  EXPECT_EQ(read_regular_file(file, most).trouble, "there is no such file");
  EXPECT_EQ(read_regular_file(folder.path(), most).trouble, "is a folder, not a file");
  EXPECT_THAT(read_regular_file("/dev/zero", most).trouble, HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(read_regular_file(file, most).trouble, HasSubstr("is not a regular file"));
}

TEST_F(ReadFileTest, FileThatIsTooLargeIsRefusedUnread) {
  write_bytes(file, "x");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  const FileReading reading = read_regular_file(file, most);
  EXPECT_EQ(reading.trouble, "is larger than 1048576 bytes");
  EXPECT_EQ(reading.bytes, "");
}

// Policies, presets, manifests, caches and graph files are read by this.
TEST_F(ReadFileTest, DocumentInAPipeIsRefusedWithItsName) {
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  try {
    json::read_text(file, "policy", most);
    FAIL();
  } catch (const json::DocumentError& error) {
    EXPECT_THAT(error.what(), StartsWith("policy \"" + file.string() + "\": is not a regular"));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
