// SPDX-License-Identifier: Apache-2.0
// The program ctxbroker-mps: runs an MPS control daemon for the host that has started it. It ends
// the daemon when the host asks for it by closing the socket, or has died. So nothing is left of a
// host that was killed: the daemon's servers would live on without it.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "process/child.hpp"
#include "process/child_program.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int host = STDOUT_FILENO;               // a socket
constexpr milliseconds look_again{20};            // while the daemon starts
constexpr std::chrono::seconds quit_patience{5};  // longer than the servers get

// Waits at most that long. The host never writes, so something to read is the end.
bool host_is_gone(milliseconds wait) {
  pollfd waiting{host, POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(wait.count())) > 0;
}

Descriptor opened(const std::filesystem::path& file, int flags) {
  Descriptor descriptor(::open(file.c_str(), flags | O_CLOEXEC, 0600));
  if (descriptor.get() < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open " + file.string());
  }
  return descriptor;
}

// Starts the control program once more, which hands the command to the daemon.
pid_t send_command(const std::filesystem::path& program, const std::string& command) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  const Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  if (::write(write_end.get(), command.data(), command.size()) < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write to a pipe");
  }
  const Descriptor nothing = opened("/dev/null", O_WRONLY);
  ChildOptions options;
  options.input = read_end.get();
  options.output = nothing.get();
  return start_child(program, {}, options);
}

// Whether the daemon answers. While there is none, the program ends with status 1.
bool takes_commands(const std::filesystem::path& program, Clock::time_point deadline) {
  const pid_t asking = send_command(program, "get_default_active_thread_percentage\n");
  int status = -1;
  while (!wait_for_end(asking, std::min(deadline, Clock::now() + look_again), status)) {
    if (Clock::now() < deadline && !host_is_gone(milliseconds(0))) continue;
    ::kill(asking, SIGKILL);
    static_cast<void>(wait_for_end(asking, Clock::now() + quit_patience, status));
    return false;
  }
  return status == 0;
}

// What the host gets: "ready", or how the start failed.
std::string wait_for_start(const std::filesystem::path& program, pid_t& daemon,
                           milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    int status = -1;
    if (wait_for_end(daemon, Clock::now(), status)) {
      daemon = 0;
      return "it ended with " + in_words(status) +
             "; it needs NVIDIA's driver and a GPU that this user may use";
    }
    if (takes_commands(program, deadline)) return "ready";
    if (Clock::now() >= deadline) {
      return "it took no commands within " + std::to_string(patience.count()) +
             " ms; if the machine is slow, raise MpsServerOptions::start_timeout";
    }
    if (host_is_gone(look_again)) return "the host did not wait for it";
  }
}

void tell_host(const std::string& line) {
  const std::string text = line + "\n";
  static_cast<void>(::send(host, text.data(), text.size(), MSG_NOSIGNAL));
}

void wait_for_host_to_go() {
  while (!host_is_gone(std::chrono::hours(1))) {
  }
}

// Starts the daemon, and tells it to quit when the host goes.
void run_daemon(const std::filesystem::path& program, const std::filesystem::path& folder,
                milliseconds patience, pid_t& daemon) {
  std::filesystem::create_directory(folder / "pipe");
  std::filesystem::create_directory(folder / "log");
  const Descriptor output = opened(folder / "log" / "output", O_WRONLY | O_CREAT | O_APPEND);
  ChildOptions options;
  options.output = output.get();
  daemon = start_child(program, {"-f"}, options);
  const std::string answer = wait_for_start(program, daemon, patience);
  tell_host(answer);
  wait_for_host_to_go();  // the folder stays as long, because the host may read the logs
  if (answer == "ready") {
    send_command(program, "quit -t 1\n");  // clients that still live get a second
    int status = -1;
    if (wait_for_end(daemon, Clock::now() + quit_patience, status)) daemon = 0;
  }
}

}  // namespace
}  // namespace ctxbroker::detail

// ctxbroker-mps PROGRAM FOLDER MILLISECONDS
int main(int argc, char** argv) {
  using namespace ctxbroker::detail;
  if (argc != 4) {
    std::fprintf(stderr, "this program serves a host that starts it (ctxbroker/mps_server.hpp)\n");
    return 2;
  }
  const std::filesystem::path folder = argv[2];
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the daemon's servers are left to this process
  pid_t daemon = 0;                    // 0: none, or its end is known
  try {
    run_daemon(argv[1], folder, milliseconds(std::stoll(argv[3])), daemon);
  } catch (const std::exception& error) {
    tell_host(error.what());
  }
  end_what_is_left(daemon);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return 0;
}
