// SPDX-License-Identifier: Apache-2.0
#include "process/child_program.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include "process/child.hpp"

namespace ctxbroker::detail {

std::string in_words(int status) {
  if (status == -1) return "somebody else waited for it";
  if (!WIFSIGNALED(status)) return "status " + std::to_string(WEXITSTATUS(status));
  const char* const name = sigdescr_np(WTERMSIG(status));
  return "signal " + std::to_string(WTERMSIG(status)) + " (" + (name != nullptr ? name : "?") + ")";
}

ChildProgram::ChildProgram(const std::filesystem::path& program,
                           const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot start \"" + program.string() + "\"");
  }
  socket_ = ends[0];
  try {
    ChildOptions options;
    options.output = ends[1];
    options.nothing_else = true;
    child_ = start_child(program, arguments, options);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
}

ChildProgram::~ChildProgram() {
  if (child_ > 0 && maker_.is_this_process()) {
    ::kill(-child_, SIGKILL);
    end();
  }
  ::close(socket_);
}

bool ChildProgram::send(std::string_view line) noexcept {
  return ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(line.size());
}

bool ChildProgram::receive(std::size_t most) {
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      received_.append(piece.data(), static_cast<std::size_t>(got));
      if (received_.size() > most) return received_.find('\n') != std::string::npos;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

std::optional<std::string> ChildProgram::take_line() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

std::string ChildProgram::end() noexcept {
  if (child_ <= 0) return "it has ended";
  using namespace std::chrono_literals;
  // It is left to be waited for, because its group could otherwise become somebody else's.
  const auto deadline = std::chrono::steady_clock::now() + 100ms;
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(1ms);
  }
  ::kill(-child_, SIGKILL);  // what it started, too
  int status = -1;
  const bool ended = wait_for_end(child_, std::chrono::steady_clock::now() + 1s, status);
  child_ = -1;
  return ended ? in_words(status) : "it could not be ended";
}

}  // namespace ctxbroker::detail
