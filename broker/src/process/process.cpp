// SPDX-License-Identifier: Apache-2.0
#include "process/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

extern char** environ;

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

std::system_error cannot_start(const std::filesystem::path& program, int error) {
  return {error, std::generic_category(), "cannot start \"" + program.string() + "\""};
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }
  int get() const noexcept { return descriptor_; }
  void close() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

pid_t spawn(const std::filesystem::path& program, const std::vector<std::string>& arguments,
            int output) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  // The host may have blocked signals on this thread; what it starts should not have.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int error =
      ::posix_spawn(&child, words[0].c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw cannot_start(program, error);
  return child;
}

// Reads until the other end is closed; false at the deadline.
bool read_all(int file, Clock::time_point end, std::string& text) {
  constexpr std::size_t most = 1 << 20;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{file, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    std::array<char, 4096> piece{};
    const ssize_t got = ::read(file, piece.data(), piece.size());
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
    if (got > 0 && text.size() < most) text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

// Waits for the end of a process that has closed its output or may have; false at the deadline.
bool wait_for(pid_t child, Clock::time_point end, int& status) {
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) {  // somebody else in the host has waited for it
      status = -1;
      return true;
    }
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

ProcessEnd run_process(const std::filesystem::path& program,
                       const std::vector<std::string>& arguments,
                       std::chrono::milliseconds deadline) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw cannot_start(program, errno);
  File read_end(ends[0]);
  File write_end(ends[1]);
  const auto end = Clock::now() + deadline;
  const pid_t child = spawn(program, arguments, write_end.get());
  write_end.close();

  ProcessEnd result;
  int status = -1;
  result.timed_out = !read_all(read_end.get(), end, result.output) || !wait_for(child, end, status);
  if (result.timed_out) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return result;
  }
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace ctxbroker::detail
