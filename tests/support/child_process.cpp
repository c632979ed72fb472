// SPDX-License-Identifier: Apache-2.0
#include "support/child_process.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

extern char** environ;

namespace ctxbroker {
namespace {

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

}  // namespace

ChildResult run_child(const std::string& test, const Environment& environment) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=" + test,
                                     "--gtest_also_run_disabled_tests"};
  std::vector<std::string> variables = merged(environment);
  pid_t child = 0;
  // /proc/self/exe would be the child's own; the path is read here.
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length > 0) arguments[0].assign(self.data(), static_cast<std::size_t>(length));
  const int status = posix_spawn(&child, arguments[0].c_str(), &actions, nullptr,
                                 pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (status != 0) throw std::runtime_error("the child cannot be started");
  ChildResult result;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = read(ends[0], piece.data(), piece.size())) > 0;) {
    result.output.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int ended = 0;
  waitpid(child, &ended, 0);
  if (WIFEXITED(ended)) result.exit_code = WEXITSTATUS(ended);
  return result;
}

}  // namespace ctxbroker
