// SPDX-License-Identifier: Apache-2.0
#include "support/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>

extern char** environ;

namespace ctxbroker {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> merged(const Environment& added) {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string entry = *one;
    // The child runs its one test, whatever part of all the parent was given.
    bool replaced = entry.rfind("GTEST_", 0) == 0;
    for (const auto& [name, value] : added) replaced |= entry.rfind(name + "=", 0) == 0;
    if (!replaced) all.push_back(entry);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Returns the end to read from; `into` is the other one.
int make_pipe(int& into) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  into = ends[1];
  return ends[0];
}

}  // namespace

ChildProcess::ChildProcess(const ChildStart& start) {
  std::vector<std::string> words = start.command, variables = merged(start.environment);
  int output = -1, errors = -1;
  files_[0] = make_pipe(output);
  if (start.errors == ChildErrors::apart) files_[1] = make_pipe(errors);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (start.errors == ChildErrors::dropped) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, errors >= 0 ? errors : output, STDERR_FILENO);
  }
  // A shell's background job ignores SIGINT, and its children would inherit that.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int status = posix_spawn(&id_, words[0].c_str(), &actions, &attributes,
                                 pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(output);
  close(errors);
  if (status == 0) return;
  for (int& file : files_) close(file);
  throw std::runtime_error(words[0] + " cannot be started: " + std::strerror(status));
}

ChildProcess::~ChildProcess() {
  result_.timed_out = true;
  if (id_ != 0) end();
  for (int& file : files_) close(file);
}

void ChildProcess::close(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

bool ChildProcess::read(std::chrono::milliseconds time) {
  std::array<pollfd, 2> polls{pollfd{files_[0], POLLIN, 0}, pollfd{files_[1], POLLIN, 0}};
  if (poll(polls.data(), polls.size(), static_cast<int>(time.count())) == 0) return false;
  for (const int i : {0, 1}) {
    if (polls[i].revents == 0) continue;
    std::array<char, 4096> piece{};
    const ssize_t got = ::read(files_[i], piece.data(), piece.size());
    if (got > 0) {
      (i == 0 ? result_.output : result_.errors).append(piece.data(), std::size_t(got));
    } else if (got == 0 || errno != EINTR) {
      close(files_[i]);
    }
  }
  return true;
}

bool ChildProcess::read_until(const std::string& text, std::chrono::milliseconds silence) {
  while (result_.output.find(text) == std::string::npos) {
    if (!is_open()) return false;
    if (!read(silence)) {
      result_.timed_out = true;
      return false;
    }
  }
  return true;
}

ChildResult ChildProcess::wait(std::chrono::milliseconds limit,
                               const std::function<void()>& meanwhile) {
  const auto deadline = Clock::now() + limit;
  while (is_open()) {
    read(std::chrono::milliseconds(5));
    if (meanwhile) meanwhile();
    if (!result_.timed_out && Clock::now() > deadline) {
      result_.timed_out = true;
      kill(id_, SIGKILL);
    }
  }
  return end();
}

ChildResult ChildProcess::end() {
  int status = 0;
  if (result_.timed_out) kill(id_, SIGKILL);
  while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
  }
  id_ = 0;
  if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  return result_;
}

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

ChildStart test_again(const std::string& test, const Environment& environment) {
  return {{this_program(), "--gtest_filter=" + test, "--gtest_also_run_disabled_tests"},
          environment};
}

ChildResult run_child(const std::string& test, const Environment& environment) {
  return ChildProcess(test_again(test, environment)).wait();
}

}  // namespace ctxbroker
