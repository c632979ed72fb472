// SPDX-License-Identifier: Apache-2.0
#include "process/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "process/child.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

std::system_error cannot_start(const std::filesystem::path& program, int error) {
  return {error, std::generic_category(), "cannot start \"" + program.string() + "\""};
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

}  // namespace

ProcessExit run_process(const std::filesystem::path& program,
                        const std::vector<std::string>& arguments,
                        std::chrono::milliseconds deadline) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw cannot_start(program, errno);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const auto end = Clock::now() + deadline;
  ChildOptions options;
  options.output = write_end.get();
  const pid_t child = start_child(program, arguments, options);
  write_end.close();

  ProcessExit result;
  int status = -1;
  result.timed_out =
      !read_all(read_end.get(), end, result.output) || !wait_for_end(child, end, status);
  if (result.timed_out) {
    ::kill(child, SIGKILL);
    // A driver that hangs may hold it where no signal reaches it.
    wait_for_end(child, Clock::now() + std::chrono::seconds(1), status);
    return result;
  }
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace ctxbroker::detail
