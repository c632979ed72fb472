// SPDX-License-Identifier: Apache-2.0
#include "files/output_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <string>
#include <thread>

#include "failure_matcher.hpp"
#include "support/temp_folder.hpp"

namespace {
std::atomic<int> umask_calls{0};
}
// In front of the C library's: the umask is the whole process's, and other threads make files.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(OutputFile, FileIsThereOnlyAfterCommit) {
  const TempFolder folder;
  OutputFile file(folder / "out");
  EXPECT_TRUE(file.write("abc", 3));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  file.commit();
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(read_bytes(folder / "out"), "abc");
}

TEST(OutputFile, FileWithoutCommitLeavesNothing) {
  const TempFolder folder;
  write_bytes(folder / "old", "before");
  {
    OutputFile fresh(folder / "out");
    fresh.write("abc", 3);
    OutputFile over(folder / "old");
    over.write("new", 3);
  }
  EXPECT_THAT(folder.names(), ElementsAre("old"));
  EXPECT_EQ(read_bytes(folder / "old"), "before");
}

TEST(OutputFile, ReplacedFileKeepsItsPermissions) {
  const TempFolder folder;
  write_bytes(folder / "old", "before");
  ::chmod((folder / "old").c_str(), 0640);
  OutputFile file(folder / "old");
  file.write("new", 3);
  EXPECT_EQ(read_bytes(folder / "old"), "before");
  file.commit();
  EXPECT_EQ(read_bytes(folder / "old"), "new");
  struct stat status = {};
  ::stat((folder / "old").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST(OutputFile, FreshFilesFollowTheUmask) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  const int calls = umask_calls;
  OutputFile file(folder / "out");
  file.commit();
  EXPECT_EQ(umask_calls, calls) << "a thread that makes a file meanwhile would get another mode";
  ::umask(before);
  struct stat status = {};
  ::stat((folder / "out").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST(OutputFile, ASymbolicLinkStaysOne) {
  const TempFolder folder;
  write_bytes(folder / "target", "before");
  std::filesystem::create_symlink("target", folder / "link");
  OutputFile file(folder / "link");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "target"), "new");
}

TEST(OutputFile, LinkToAFileThatIsNotThereMakesThatFile) {
  const TempFolder folder;
  std::filesystem::create_symlink("target", folder / "link");
  OutputFile file(folder / "link");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "target"), "new");
}

TEST(OutputFile, BadPlacesAreRefused) {
  const TempFolder folder;
  write_bytes(folder / "plain", "x");
  const auto refuse = [](const std::filesystem::path& path, const char* part) {
    expect_failure([&] { const OutputFile file(path); }, ExitCode::output, part);
  };
  refuse(folder / "no/such/out", "No such file or directory");
  refuse(folder / "plain/out", "plain");
  std::filesystem::create_symlink("circle", folder / "circle");
  refuse(folder / "circle", "is a link that leads to no file");
  std::filesystem::create_symlink("no/such/out", folder / "astray");
  refuse(folder / "astray", "No such file or directory");
  refuse(folder.path(), "is a folder; write the name of a file in it");
  refuse(folder.path() / "", "names a folder; write the name");
  refuse("/dev/null", "not a regular file");
  EXPECT_THAT(folder.names(), ElementsAre("astray", "circle", "plain"));
}

TEST(OutputFile, TooManyFilesAtOnceAreRefused) {
  const TempFolder folder;
  std::deque<OutputFile> files;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  while (files.size() < 1024) files.emplace_back(folder / std::to_string(files.size()));
  expect_failure([&] { const OutputFile e(folder / "e"); }, ExitCode::output, "too many");
  files.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

// In a child, as limits and signals are the process's.
template <typename Body>
int wait_status_of(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(OutputFile, AFullDiskIsAnError) {
  const TempFolder folder;
  const int status = wait_status_of([&] {
    remove_on_signals();
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      OutputFile file(folder / "out");
      const std::string data(5000, 'x');
      if (file.write(data.data(), data.size())) ::_exit(1);
      file.commit();
      ::_exit(2);
    } catch (const Failure& failure) {
      const bool said = std::string(failure.what()).find("File too large") != std::string::npos;
      ::_exit(failure.code() == ExitCode::output && said ? 0 : 3);
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(folder.names(), IsEmpty());
}

class OutputFileSignal : public testing::TestWithParam<int> {};

TEST_P(OutputFileSignal, SignalRemovesTheUnfinishedFile) {
  const TempFolder folder;
  const int status = wait_status_of([&] {
    ::signal(GetParam(), SIG_DFL);
    remove_on_signals();
    OutputFile file(folder / "out");
    file.write("abc", 3);
    ::raise(GetParam());
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_THAT(folder.names(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Signals, OutputFileSignal,
                         testing::Values(SIGINT, SIGTERM, SIGHUP, SIGPIPE));

// The signal comes to one thread while another one creates, completes and gives up files.
TEST(OutputFile, ASignalToAnotherThreadLeavesNoUnfinishedFile) {
  for (int round = 0; round < 40; ++round) {
    const TempFolder folder;
    const int status = wait_status_of([&] {
      ::signal(SIGINT, SIG_DFL);  // a shell's background job inherits that it is ignored
      remove_on_signals();
      std::atomic<int> done{0};
      std::thread creator([&] {
        for (int number = 0; true; ++number) {
          OutputFile file(folder / ("out" + std::to_string(number % 3)));
          if (number % 2 == 0) file.commit();
          ++done;
        }
      });
      while (done < 20 + round) std::this_thread::yield();
      ::raise(SIGINT);
      creator.join();
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    ASSERT_EQ(WTERMSIG(status), SIGINT);
    for (const std::string& name : folder.names()) {
      EXPECT_THAT(name, testing::Not(testing::EndsWith(".part")));
    }
  }
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
