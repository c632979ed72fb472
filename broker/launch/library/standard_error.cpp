// SPDX-License-Identifier: Apache-2.0
#include "standard_error.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

namespace ctxbroker::launch {
namespace {

// Keeps SIGPIPE from the calling thread. One that a write has caused is taken away.
class WithoutSigpipe {
 public:
  WithoutSigpipe() noexcept {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    if (!was_pending_) {
      const timespec at_once{};
      while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

std::string with_name(const std::string& name, std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.append(name).append(text.substr(0, end)).append("\n");
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

void write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace

bool StandardError::is_still_there() const noexcept {
  struct stat now {};
  return start_.has_standard_error != 0 && ::fstat(STDERR_FILENO, &now) == 0 &&
         now.st_dev == start_.device && now.st_ino == start_.inode;
}

void StandardError::print(const std::string& text) const noexcept {
  const int error = errno;
  try {
    if (is_still_there()) {
      const WithoutSigpipe none;
      write_all(with_name(name_, text));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: the line is lost
  }
  errno = error;
}

}  // namespace ctxbroker::launch
