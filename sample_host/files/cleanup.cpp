// SPDX-License-Identifier: Apache-2.0
#include "files/cleanup.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ctxbroker/running_call.hpp"
#include "exit_code.hpp"
#include "files/start.hpp"
#include "observe/new_file.hpp"
#include "terminal.hpp"

namespace ctxbroker::sample_host::cleanup {

namespace {

struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<bool> armed{false};  // `path` is complete
  std::array<char, PATH_MAX> path{};
};

// Global because a signal handler has no other way to reach it. Each of 128 frames that are in a
// graph or being written can have some outputs. Memory is taken only for those that are used.
std::array<Slot, 1024> slots;
// The signal may come to another thread than the one that is just creating a file. The handler
// waits for that one, and no file is created after it.
std::atomic<int> creating{0};
std::atomic<bool> ending{false};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

struct SignalReport {
  std::string path, part;               // empty: standard output
  std::array<std::string, NSIG> texts;  // by the signal; 0 is exit
};
// Made once, and never freed, because a handler may be reading it.
std::atomic<const SignalReport*> signal_report{nullptr};
std::atomic<bool> report_is_due{false};

// A process that a plug-in forks inherits the handlers, and ends without them.
pid_t installer = 0;
std::atomic<bool> may_exit{false};

// Async-signal-safe, as all that the handler calls.
void write_all(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

void write_signal_report(int signal_number) {
  if (!report_is_due.load(std::memory_order_acquire)) return;
  const SignalReport* const report = signal_report.load();
  const std::string& text = report->texts[static_cast<std::size_t>(signal_number)];
  if (report->path.empty()) return write_all(STDOUT_FILENO, text);
  const int file =
      ::open(report->part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return;
  write_all(file, text);
  ::close(file);
  if (::rename(report->part.c_str(), report->path.c_str()) != 0) ::unlink(report->part.c_str());
}

void remove_unfinished() {
  ending.store(true);
  while (creating.load() != 0) continue;
  for (const Slot& slot : slots) {
    if (slot.armed.load(std::memory_order_acquire)) ::unlink(slot.path.data());
  }
}

// Runs when anybody but main ends the process with exit or quick_exit. Without it, a plug-in that
// calls exit(0) would look like success.
void handle_exit() {
  if (may_exit.load() || ::getpid() != installer) return;
  remove_unfinished();
  std::string who = "code outside of all plug-ins' functions";
  for (const RunningCall& call : running_calls()) {
    if (call.thread != static_cast<std::uint64_t>(::gettid())) continue;
    who = "plug-in " + (call.plugin.empty() ? "library" : call.plugin) +
          (call.library.empty() ? "" : " (" + call.library + ")") + ", in " + call.function + ",";
  }
  std::fflush(stdout);
  print_error(who +
                  " ended the process with exit; complete files stay, and unfinished ones are "
                  "removed; leave the plug-in out, or report this to its author",
              use_colour());
  write_signal_report(0);
  ::_exit(static_cast<int>(ExitCode::plugin));
}

constexpr std::array ending_signals{SIGINT,  SIGTERM, SIGHUP, SIGPIPE, SIGQUIT,
                                    SIGSEGV, SIGBUS,  SIGILL, SIGFPE,  SIGABRT};

// Async-signal-safe. The action is reset on entry (SA_RESETHAND), so the signal that is raised here
// ends the process with its own status as soon as the handler returns.
extern "C" void handle_ending_signal(int signal_number) {
  const int error_before = errno;
  if (::getpid() != installer) {
    ::raise(signal_number);
    errno = error_before;
    return;
  }
  remove_unfinished();
  write_signal_report(signal_number);
  if (signal_number == SIGINT || signal_number == SIGTERM) {
    static constexpr char text[] =
        "\nsample_host: interrupted; complete files stay, and unfinished ones are removed\n";
    // On a terminal, a progress bar may stand in the line.
    const std::size_t first = ::isatty(STDERR_FILENO) != 0 ? 0 : 1;
    static_cast<void>(!::write(STDERR_FILENO, text + first, sizeof text - 1 - first));
  }
  ::raise(signal_number);
  errno = error_before;
}

}  // namespace

void wait_if_ending() noexcept {
  while (ending.load()) ::pause();
}

int reserve() noexcept {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].taken.exchange(true)) return static_cast<int>(i);
  }
  return -1;
}

int create(int slot, std::string& path, std::size_t suffix_length, mode_t mode) {
  Slot& place = slots[static_cast<std::size_t>(slot)];
  if (path.size() >= place.path.size()) {
    errno = ENAMETOOLONG;
    return -1;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  creating.fetch_add(1);
  if (ending.load()) {
    creating.fetch_sub(1);
    wait_if_ending();
  }
  const int file = detail::create_new_file(path.data(), path.size(), suffix_length, mode);
  const int error = errno;
  if (file >= 0) {
    std::memcpy(place.path.data(), path.c_str(), path.size() + 1);
    place.armed.store(true, std::memory_order_release);
  }
  creating.fetch_sub(1);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return file;
}

void release(int slot) noexcept {
  Slot& place = slots[static_cast<std::size_t>(slot)];
  place.armed.store(false, std::memory_order_release);
  place.taken.store(false);
}

void leave_report(const std::string& path, const std::function<std::string(int)>& text_of) {
  auto* const report = new SignalReport;
  if (path != "-") {
    report->path = from_start(path).string();
    report->part = report->path + "." + std::to_string(::getpid()) + ".part";
  }
  report->texts[0] = text_of(0);
  for (const int signal_number : ending_signals) {
    report->texts[static_cast<std::size_t>(signal_number)] = text_of(signal_number);
  }
  signal_report.store(report);
  report_is_due.store(true, std::memory_order_release);
}

void report_is_written() noexcept {
  report_is_due.store(false);
}

void let_exit() noexcept {
  may_exit.store(true);
}

void install() {
  installer = ::getpid();
  std::atexit(handle_exit);
  std::at_quick_exit(handle_exit);
  struct sigaction action = {};
  action.sa_handler = handle_ending_signal;
  action.sa_flags = SA_RESETHAND;
  sigfillset(&action.sa_mask);
  for (const int signal_number : ending_signals) {
    struct sigaction current = {};
    ::sigaction(signal_number, nullptr, &current);
    if (current.sa_handler == SIG_DFL) ::sigaction(signal_number, &action, nullptr);
  }
  // A write beyond the file size limit shall fail with EFBIG instead of ending the process.
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace ctxbroker::sample_host::cleanup
