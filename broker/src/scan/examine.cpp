// SPDX-License-Identifier: Apache-2.0
#include "scan/examine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string_view>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/description_json.hpp"
#include "plugin/foreign_text.hpp"
#include "process/child.hpp"
#include "process/child_program.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;
using json::Json;

constexpr std::size_t largest_answer = std::size_t{16} << 20;  // bytes
constexpr std::size_t most_words = 2000;                       // bytes of what a library printed
constexpr rlim_t most_written = rlim_t{1} << 30;               // bytes of what it printed
// The exit statuses of a process that has written its answer. If a library calls exit, the process
// ends with another one.
constexpr int described_status = 86, refused_status = 87;

// A file in memory: nobody waits at it, whoever keeps it open.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : file_(::memfd_create(name, 0)) {
    if (file_ < 0) throw Error(ErrorKind::wrong_state, "no file can be made in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }
  int get() const noexcept { return file_; }

  std::size_t size() const noexcept {
    const off_t end = ::lseek(file_, 0, SEEK_END);
    return end < 0 ? 0 : static_cast<std::size_t>(end);
  }
  std::string read(std::size_t from, std::size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t got = ::pread(file_, text.data(), bytes, static_cast<off_t>(from));
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }
  // Replaces what is there.
  bool write(std::string_view text) const noexcept {
    if (::ftruncate(file_, 0) != 0) return false;
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t wrote =
          ::pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (wrote <= 0 && errno != EINTR) return false;
      if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
    return true;
  }

 private:
  int file_;
};

// ---- In the forked process -----------------------------------------------------------------

void limit(int resource, rlim_t most) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limits);
  limits.rlim_cur = std::min(limits.rlim_cur, most);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

// Apart from the examiner: its session, its terminal, its files.
void step_aside(const MemoryFile& answer, const MemoryFile& printed, pid_t examiner) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != examiner) ::_exit(1);  // it ended before that
  ::prctl(PR_SET_DUMPABLE, 1);              // as a library expects it: /proc/self can be read
  ::setsid();
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, most_written);
  std::signal(SIGXFSZ, SIG_DFL);  // as a library expects it
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::close(nothing);
  ::dup2(printed.get(), STDOUT_FILENO);
  ::dup2(printed.get(), STDERR_FILENO);
  if (printed.get() != answer.get()) ::close(printed.get());
}

[[noreturn]] void load_and_answer(const std::filesystem::path& library, const MemoryFile& answer) {
  std::string text;
  int status = described_status;
  std::set_terminate(std::abort);  // what the broker says of it stays the last line
  try {
    BrokerOptions options;
    options.host_name = "ctxb-scan";
    Broker broker = Broker::open_without_driver(std::move(options));
    const PluginLibrary loaded = broker.load(library);
    text = to_json(loaded.plugins()).dump();
    if (text.size() > largest_answer) {
      status = refused_status;
      text = "its descriptions take more than " + std::to_string(largest_answer) + " bytes";
    }
    // Without destructors: how the library ends is not asked for.
    answer.write(text);
    ::_exit(status);
  } catch (const std::exception& error) {
    text = error.what();
  }
  answer.write(text);
  ::_exit(refused_status);
}

// ---- In the examiner -----------------------------------------------------------------------

// A file that becomes readable at the child's end; -1 where the system has none.
int end_of(pid_t child) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
}

// False at the deadline. Ends this process when the host has gone.
bool wait_for_child(pid_t child, Clock::time_point deadline, int host, int& status) {
  const int ended = end_of(child);
  bool in_time = false;
  for (;;) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      in_time = true;
      break;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    std::array<pollfd, 2> files{pollfd{ended, POLLIN, 0}, pollfd{host, POLLRDHUP, 0}};
    ::poll(files.data(), files.size(), ended < 0 ? 2 : static_cast<int>(std::min(left, 60000L)));
    if ((files[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      end_what_is_left(child);
      ::_exit(1);
    }
  }
  if (ended >= 0) ::close(ended);
  return in_time;
}

// Says that the limit on the size of files ended the child, if it is not the one that the child
// gets here: then it is not the library that does too much. Empty: it is not so.
std::string file_size_limit(int status) {
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGXFSZ) return {};
  rlimit limits{};
  if (::getrlimit(RLIMIT_FSIZE, &limits) != 0 || limits.rlim_cur >= most_written) return {};
  return std::string("it cannot be told what is in it: ") + file_size_limit_reached +
         std::to_string(limits.rlim_cur) + " bytes (ulimit -f); raise it";
}

// Returns the last line that the library printed, for the end of a message; empty: it printed
// nothing.
std::string last_words(const MemoryFile& printed) {
  const std::size_t size = printed.size();
  const std::size_t bytes = std::min(size, most_words);
  std::string text = take_message(printed.read(size - bytes, bytes).c_str());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t line = text.rfind('\n');
  if (line != std::string::npos) text.erase(0, line + 1);
  return text.empty() ? text : "; it printed \"" + text + "\"";
}

}  // namespace

void become_examiner() noexcept {
  std::signal(SIGCHLD, SIG_DFL);  // the host may ignore it, and then nobody could be waited for
  std::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_DUMPABLE, 0);
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  std::vector<int> files;
  for (const dirent* entry = nullptr; (entry = ::readdir(folder)) != nullptr;) {
    const int file = std::atoi(entry->d_name);
    if (file > STDERR_FILENO && file != ::dirfd(folder)) files.push_back(file);
  }
  ::closedir(folder);
  for (const int file : files) ::close(file);
}

Examination examine(const std::filesystem::path& library, std::chrono::milliseconds deadline,
                    int host) {
  const MemoryFile answer("answer"), printed("printed");
  const pid_t examiner = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::wrong_state, "no process can be made");
  if (child == 0) {
    step_aside(answer, printed, examiner);
    load_and_answer(library, answer);
  }
  int status = 0;
  const bool ended = wait_for_child(child, Clock::now() + deadline, host, status);
  end_what_is_left(child);
  if (!ended) {
    return {Outcome::hung, "loading it took longer than " + std::to_string(deadline.count()) +
                               " ms" + last_words(printed)};
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == described_status || code == refused_status) {
    if (answer.size() > largest_answer) {
      return {Outcome::could_not_load, "its answer has " + std::to_string(answer.size()) +
                                           " bytes; no library's has more than " +
                                           std::to_string(largest_answer)};
    }
    return {code == described_status ? Outcome::described : Outcome::could_not_load,
            answer.read(0, answer.size())};
  }
  if (const std::string limit = file_size_limit(status); !limit.empty()) {
    return {Outcome::could_not_load, limit};
  }
  return {Outcome::crashed,
          (code >= 0 ? "it ended the process that loaded it with status " + std::to_string(code)
                     : "it crashed while it was loaded: " + in_words(status)) +
              last_words(printed)};
}

}  // namespace ctxbroker::detail
