// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "fixtures/temp_folder.hpp"
#include "support/child_process.hpp"

extern char** environ;

namespace ctxbroker::sample_host::test {

namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  std::array<int, 2> ends{-1, -1};

  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(0);
    close(1);
  }
  void close(std::size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

std::string name_of(const std::string& variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> make_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool changed = false;
    for (const std::string& change : changes) {
      changed = changed || name_of(change) == name_of(*variable);
    }
    if (!changed) result.emplace_back(*variable);
  }
  bool driver_chosen = std::getenv("CTXBROKER_DRIVER") != nullptr;
  for (const std::string& change : changes) {
    driver_chosen = driver_chosen || name_of(change) == "CTXBROKER_DRIVER";
    if (change.find('=') != std::string::npos) result.push_back(change);
  }
  if (!driver_chosen) result.emplace_back("CTXBROKER_DRIVER=software");
  // What scans find is kept neither for this machine's user nor for the next test.
  static const TempFolder own;
  for (const char* variable : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME"}) {
    const bool chosen = std::any_of(changes.begin(), changes.end(), [&](const std::string& change) {
      return name_of(change) == variable;
    });
    if (chosen) continue;
    std::erase_if(result, [&](const std::string& one) { return name_of(one) == variable; });
    result.push_back(std::string(variable) + "=" + (own / "").string());
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

pid_t spawn(const Start& start, const Pipe& out, const Pipe& err) {
  std::vector<std::string> words;
  if (!start.wrapper.empty()) words = {"/bin/sh", "-c", start.wrapper + "; exec \"$0\" \"$@\""};
  words.push_back((program_folder() / "sample_host").string());
  words.insert(words.end(), start.arguments.begin(), start.arguments.end());
  std::vector<std::string> environment = make_environment(start.environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], STDERR_FILENO);
  // A shell's background job ignores SIGINT, and its children would inherit that.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int result = ::posix_spawn(&child, words[0].c_str(), &actions, &attributes,
                                   pointers(words).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (result != 0) throw std::runtime_error(words[0] + ": " + std::strerror(result));
  return child;
}

bool has_file_ending(const std::filesystem::path& folder, const std::string& ending) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().ends_with(ending)) return true;
  }
  return false;
}

// Appends what is there; false at the end.
bool drain(int file, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(file, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

const std::vector<std::string> signals_stay_signals = [] {
  std::vector<std::string> words;
  for (const auto& [name, value] : ctxbroker::signals_stay_signals) {
    words.push_back(std::string(name).append("=").append(value));
  }
  return words;
}();

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

Ended run_sample_host(const Start& start) {
  Pipe out;
  Pipe err;
  const pid_t child = spawn(start, out, err);
  out.close(1);
  err.close(1);
  Ended ended;
  bool interrupted = start.interrupt_when.empty();
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(100);
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    std::array<pollfd, 2> polls{pollfd{out.ends[0], POLLIN, 0}, pollfd{err.ends[0], POLLIN, 0}};
    ::poll(polls.data(), polls.size(), 5);
    if (polls[0].revents != 0 && !drain(out.ends[0], ended.out)) out.close(0);
    if (polls[1].revents != 0 && !drain(err.ends[0], ended.err)) err.close(0);
    if (!interrupted && has_file_ending(start.interrupt_folder, start.interrupt_when)) {
      ::kill(child, SIGINT);
      interrupted = true;
    }
    if (!ended.timed_out && Clock::now() > deadline) {
      ended.timed_out = true;
      ::kill(child, SIGKILL);
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

}  // namespace ctxbroker::sample_host::test
