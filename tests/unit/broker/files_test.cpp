// SPDX-License-Identifier: Apache-2.0
// Files that others have named, and files that are written.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "ctxbroker/error.hpp"
#include "json/document.hpp"
#include "observe/regular_file.hpp"
#include "observe/whole_file.hpp"
#include "support/temp_folder.hpp"

namespace {
std::atomic<int> umask_calls{0};
}
// In front of the C library's: the umask is the whole process's, and other threads make files.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

unsigned mode_of(const std::filesystem::path& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(WrittenFileTest, UmaskIsAppliedAndNeverTouched) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  const int calls = umask_calls;
  write_whole_file(folder / "new", [](const auto& sink) { sink("text"); });
  EXPECT_EQ(umask_calls, calls);
  ::umask(before);
  EXPECT_EQ(mode_of(folder / "new"), 0640U);
  EXPECT_EQ(read_bytes(folder / "new"), "text");
}

TEST(WrittenFileTest, FileThatIsReplacedKeepsItsMode) {
  const TempFolder folder;
  write_bytes(folder / "old", "before");
  ::chmod((folder / "old").c_str(), 0600);
  write_whole_file(folder / "old", [](const auto& sink) { sink("after"); });
  EXPECT_EQ(mode_of(folder / "old"), 0600U);
  EXPECT_EQ(read_bytes(folder / "old"), "after");
}

std::string error_of(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(WrittenFileTest, FileBeyondTheLimitOnFilesIsAnErrorThatNamesTheLimit) {
  const TempFolder folder;
  write_bytes(folder / "old", "before");
  const auto write = [&] {
    write_whole_file(folder / "old", [](const auto& sink) { sink(std::string(100, 'x')); });
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 10;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of(write);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("this process may write 10 bytes (ulimit -f)"));
  EXPECT_EQ(read_bytes(folder / "old"), "before");
  EXPECT_EQ(error_of(write), "") << "as a control";
}

TEST(WrittenFileTest, PipeIsWrittenIfSomebodyReadsItAndNotWaitedForOtherwise) {
  const TempFolder folder;
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(100'000, 'x');  // more than a pipe holds
  const auto write = [&] { write_whole_file(pipe, [&](const auto& sink) { sink(text); }); };
  EXPECT_THAT(error_of(write), HasSubstr("a pipe that nobody reads"));
  std::string got;
  std::thread reader([&] { got = read_bytes(pipe); });
  EXPECT_EQ(error_of(write), "");
  reader.join();
  EXPECT_EQ(got.size(), text.size());
  EXPECT_EQ(error_of([] { write_whole_file("/dev/null", [](const auto& sink) { sink("x"); }); }),
            "");
}

TEST(WrittenFileTest, FileOfTheBrokersOwnIsARegularFile) {
  const TempFolder folder;
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& file : {pipe, std::filesystem::path("/dev/null")}) {
    EXPECT_THAT(error_of([&] { write_own_file(file, [](const auto& sink) { sink("x"); }); }),
                HasSubstr("is not a regular file; remove it"));
  }
  write_own_file(folder / "new", [](const auto& sink) { sink("text"); });
  EXPECT_EQ(read_bytes(folder / "new"), "text");
}

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
    json::read_text(file, "policy", limits::Limit{"test_file", most, "bytes", "write less"});
    FAIL();
  } catch (const json::DocumentError& error) {
    EXPECT_THAT(error.what(), StartsWith("policy \"" + file.string() + "\": is not a regular"));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
