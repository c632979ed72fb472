// SPDX-License-Identifier: Apache-2.0
#include "process/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <locale>
#include <system_error>
#include <thread>

#include "process/environment.hpp"
#include "process/foreign_close.hpp"

namespace ctxbroker::detail {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Where the child has its own descriptors, none of the host's may lie: it would be overwritten
// before it is copied. A host that has closed its standard ones gets their numbers for others.
constexpr int first_free = STDERR_FILENO + 1;
Descriptor moved_up(int descriptor) {
  constexpr int first_above = first_free + 1;
  if (descriptor < 0 || descriptor >= first_above) return Descriptor();
  Descriptor copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, first_above));
  if (copy.get() >= 0) return copy;
  throw std::system_error(errno, std::generic_category(), "cannot copy a descriptor");
}

// The processes whose parent this one is, those included that were left to it.
std::vector<pid_t> own_children() {
  const std::string self = std::to_string(::getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  file.imbue(std::locale::classic());  // of others, some take a blank for a part of a number
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

void Descriptor::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

pid_t start_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                  const ChildOptions& options) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables =
      options.environment ? *options.environment : kept_environment();

  const Descriptor copies[] = {moved_up(options.input), moved_up(options.output),
                               moved_up(options.lent)};
  const auto found = [](const Descriptor& copy, int given) {
    return copy.get() >= 0 ? copy.get() : given;
  };
  const int input = found(copies[0], options.input), output = found(copies[1], options.output),
            lent = found(copies[2], options.lent);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (input >= 0) {
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  if (lent >= 0) posix_spawn_file_actions_adddup2(&actions, lent, first_free);
  if (options.nothing_else) {
    posix_spawn_file_actions_addclosefrom_np(&actions, first_free + (lent >= 0 ? 1 : 0));
  }
  // The host may have blocked signals on this thread; what it starts should not have.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Nor does it ignore what the host ignores.
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.nothing_else) flags |= POSIX_SPAWN_SETPGROUP;  // group 0: one of its own
  posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  pid_t child = -1;
  int error = 0;
  {
    const NoForeignClose none_close;
    error = ::posix_spawn(&child, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                          pointers(variables).data());
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(),
                            "cannot start \"" + program.string() + "\"");
  }
  return child;
}

bool wait_for_end(pid_t child, std::chrono::steady_clock::time_point deadline, int& status) {
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) {
      status = -1;
      return true;
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Each that ends leaves its own children to this process, so there may be several rounds.
std::size_t end_what_is_left(pid_t child) {
  std::size_t count = 0;
  if (child > 0) ::kill(-child, SIGKILL);
  for (int round = 0; round < 1000; ++round) {
    for (const pid_t one : own_children()) ::kill(one, SIGKILL);
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) ++count;
    if (ended < 0 && errno == ECHILD) break;
    ::poll(nullptr, 0, 1);
  }
  return count;
}

}  // namespace ctxbroker::detail
