// SPDX-License-Identifier: Apache-2.0
// The exits of a worker's processes: what is known of them, who is told, and when.
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <locale>
#include <sstream>
#include <thread>

#include "plugin/foreign_text.hpp"
#include "process/own_thread.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  return "signal " + std::to_string(number) +
         (name != nullptr ? " (SIG" + std::string(name) + ")" : std::string());
}

std::string in_words(const std::vector<WorkerCallInFlight>& calls) {
  std::string text;
  for (const auto& call : calls) {
    text += (text.empty() ? " while it handled " : " and ") + message_in_words(call.type);
    if (call.type < first_own_type) text += " of subject " + std::to_string(call.subject);
  }
  return text;
}

// Processes that a worker has made as children of its parent (CLONE_PARENT) die with its group, and
// the parent has to wait for them. The group's number is not given out again before that.
void wait_for_group(int group) noexcept {
  while (::waitpid(-group, nullptr, __WALL) > 0) continue;
}

void see_off_group(int group) noexcept {
  constexpr int most_looks = 50;
  for (int look = 0; look < most_looks; ++look) {
    const pid_t ended = ::waitpid(-group, nullptr, WNOHANG | __WALL | __WNOTHREAD);
    if (ended < 0) return;
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  try {
    start_own_thread([group] { wait_for_group(group); }).detach();
  } catch (...) {  // NOLINT(bugprone-empty-catch): then they stay zombies
  }
}

template <std::size_t Size>
std::string text_of(const char (&text)[Size]) {
  char copy[Size];  // the process can be alive, if the system cannot end it
  std::memcpy(copy, text, Size);
  copy[Size - 1] = '\0';
  return take_message(copy);
}

std::vector<RunningCall> read_running(std::byte* memory) {
  std::vector<RunningCall> all;
  for (const RunningCopy& copy : running_of(memory).copies) {
    std::string plugin = text_of(copy.plugin), function = text_of(copy.function);
    // The process may have written anything over these names. '?' stands for bytes that are not
    // text.
    const bool is_name = plugin.empty() || is_reverse_dns(plugin);
    if (function.empty() || function.find('?') != std::string::npos || !is_name) continue;
    const auto thread = static_cast<std::uint64_t>(copy.thread.load());
    all.push_back({std::move(plugin), text_of(copy.library), std::move(function), thread, {}});
  }
  return all;
}

std::string in_words(const std::vector<RunningCall>& calls) {
  std::string text;
  for (const RunningCall& call : calls) {
    text += (text.empty() ? " in " : " and in ") + call.function + " of ";
    text += !call.plugin.empty() ? "plug-in " + call.plugin : "library \"" + call.library + "\"";
  }
  return text;
}

}  // namespace

std::string message_in_words(std::uint32_t type) {
  constexpr std::array graph{"the graph's set-up",
                             "a plug-in's creation",
                             "a plug-in's restoration",
                             "a question",
                             "a preset",
                             "a preset",
                             "a parameter",
                             "an activation",
                             "a deactivation",
                             "the timeline",
                             "lent device memory",
                             "device memory that was taken back",
                             "device memory between processes",
                             "an answer"};
  constexpr std::array own{"the module's start", "the module's stop", "a lent block",
                           "a block that was taken back"};
  const auto named = [](const auto& names, std::uint32_t index, const char* others) {
    return index < names.size() ? names[index] : others;
  };
  if (type >= first_graph_type) return named(graph, type - first_graph_type, "a job");
  if (type >= first_own_type) return named(own, type - first_own_type, "a call of the library's");
  return "message " + std::to_string(type);
}

std::uint64_t oom_kills() noexcept {
  try {
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; std::getline(own, line);) {
      if (line.rfind("0::", 0) != 0) continue;
      std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/memory.events");
      events.imbue(std::locale::classic());
      std::string name;
      for (std::uint64_t count = 0; events >> name >> count;) {
        if (name == "oom_kill") return count;
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): then nobody counts
  }
  return 0;
}

ProcessLook look_at(int id) {
  constexpr unsigned long exiting = 4;  // PF_EXITING
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  ProcessLook look;
  if (name_end == std::string::npos) return look;
  std::istringstream rest(text.substr(name_end + 1));
  rest.imbue(std::locale::classic());  // of others, some take a blank for a part of a number
  rest >> look.state;
  long skipped = 0;
  for (int field = 4; field < 9; ++field) rest >> skipped;
  unsigned long flags = 0;
  rest >> flags;
  std::string last;  // the field 52 is the exit code
  int field = 9;
  while (rest >> last) ++field;
  look.is_dying = look.state == 'Z' || look.state == 'X' || (flags & exiting) != 0;
  if (look.is_dying && field == 52) look.status = std::atoi(last.c_str());
  return look;
}

namespace {

int traced_status(int id) noexcept {
  try {
    const int status = look_at(id).status;
    return status != 0 ? status : -1;
  } catch (...) {  // no memory
    return -1;
  }
}

}  // namespace

// The process itself is left: it is waited for by its id. So is what the host traces on another
// thread.
void reap_siblings(const WorkerProcess& process) noexcept {
  for (;;) {
    siginfo_t ended{};
    const int result = ::waitid(P_PGID, static_cast<id_t>(process.id), &ended,
                                WEXITED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD);
    if (result != 0 || ended.si_pid == 0 || ended.si_pid == process.id) return;
    ::waitpid(ended.si_pid, nullptr, WNOHANG | __WALL | __WNOTHREAD);
  }
}

std::optional<int> reap(WorkerProcess& process, std::chrono::milliseconds patience) noexcept {
  if (process.is_reaped) return -1;
  pollfd waiting{process.pidfd.get(), POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return {};
  ::kill(-process.id, SIGKILL);  // its children, as far as they are still in its group
  reap_siblings(process);
  int status = 0;
  const pid_t ended = ::waitpid(process.id, &status, WNOHANG);
  if (ended == 0) {  // it has ended, and its tracer has to see that first
    process.is_traced = true;
    return traced_status(process.id);
  }
  process.is_reaped = true;
  see_off_group(process.id);
  return ended == process.id ? status : -1;
}

// Before the worker's thread ends. A process dies when the system lets it; somebody has to wait for
// it then.
void WorkerImpl::see_off() noexcept {
  const auto may_wait = [](const Process& process) {
    return Clock::now() - process->killed_at < kill_patience;
  };
  while (std::any_of(leaving_.begin(), leaving_.end(), may_wait)) {
    wait_for({}, std::chrono::milliseconds(100));
  }
  for (const Process& process : leaving_) {
    ::kill(-process->id, SIGKILL);
    start_own_thread([id = process->id] {
      ::waitpid(id, nullptr, 0);
      wait_for_group(id);
    }).detach();
  }
  leaving_.clear();
}

// With the lock. What the host has lent to the process must be safe when its end is told. Also, the
// signal of finish_early would stop the system from writing a core file.
bool WorkerImpl::may_leave(const WorkerProcess& process) const {
  return options_.core_limit == 0 && !process.has_descriptors &&
         std::all_of(lent_.begin(), lent_.end(), [](const auto& one) { return one->is_private; });
}

bool WorkerImpl::is_about_to_end(const WorkerProcess& process) const {
  const Lock lock(mutex_);
  return (process.asked || process.socket_ended) && may_leave(process);
}

// Tells the end of a process that is dying, if it is known how it ends. Code in a process can end
// its main thread alone, so all of it is killed first.
bool WorkerImpl::finish_early(const Process& process) {
  const ProcessLook look = look_at(process->id);
  pollfd waiting{process->pidfd.get(), POLLIN, 0};
  const bool is_gone = ::poll(&waiting, 1, 0) > 0;  // then this may be another one's look
  if (!look.is_dying || is_gone || options_.core_limit != 0) return false;
  ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
  int status = look.status;
  {
    const Lock lock(mutex_);
    if (!may_leave(*process)) return false;
    if (status == 0 && process->asked) status = SIGKILL;
    if (status == 0) return false;
    if (!process->asked) process->killed_at = Clock::now();
    process->is_leaving = true;
  }
  finish(process, status);
  return true;
}

WorkerExit WorkerImpl::describe(WorkerProcess& process, std::optional<int> known) {
  const int status = known.value_or(0);
  WorkerExit exit;
  exit.process_id = process.id;
  exit.in_flight = process.channel.in_flight();
  exit.running = read_running(process.memory.get());
  std::replace(process.last_output.begin(), process.last_output.end(), '\0', ' ');
  exit.output = take_message(process.last_output.c_str());
  if (WIFEXITED(status)) exit.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  std::optional<WorkerExitCause> asked;
  std::string text;
  {
    const Lock lock(mutex_);
    asked = process.asked;
    text = process.asked_text;
  }
  // A cause that was asked for counts, unless the process exited before.
  if (asked && (!known || status == -1 || exit.signal == SIGKILL)) {
    exit.cause = *asked;
    if (!known) text += ", and the system has not ended it yet";
  } else if (exit.signal != 0) {
    exit.cause = WorkerExitCause::signal;
    text = "it was ended by " + signal_name(exit.signal);
    if (exit.signal == SIGKILL ? oom_kills() > process.oom_kills : process.channel.memory_short()) {
      exit.cause = WorkerExitCause::out_of_memory;
      text += exit.signal == SIGKILL ? ", because the system was short of memory"
                                     : " when no more memory was to be had";
    }
  } else if (status == -1) {
    text = "it ended; how is not known, because other code of the host waited for it";
  } else {
    text = "it ended itself with exit status " + std::to_string(exit.exit_status);
  }
  exit.text = text + in_words(exit.running) + in_words(exit.in_flight);
  if (has_stopped(process, exit)) exit.text += " after its stop";
  return exit;
}

// Returns true if the worker has answered the call of its module's stop.
bool WorkerImpl::has_stopped(const WorkerProcess& process, const WorkerExit& exit) {
  return process.is_stopping &&
         std::none_of(exit.in_flight.begin(), exit.in_flight.end(),
                      [](const WorkerCallInFlight& call) { return call.type == stop_type; });
}

// Returns true if the host wanted this exit. How a process ended is not known if other code of the
// host has waited for it.
bool WorkerImpl::is_peaceful(const WorkerProcess& process, const WorkerExit& exit) {
  if (process.peaceful) return true;
  return has_stopped(process, exit) &&
         (exit.cause == WorkerExitCause::by_host ||
          (exit.cause == WorkerExitCause::exited && exit.exit_status <= 0));
}

// Nothing: the system does not end the process.
void WorkerImpl::finish(const Process& process, std::optional<int> status) {
  if (!process->is_reaped) ::kill(-process->id, SIGKILL);  // its children, as in reap
  if (process->output.get() >= 0) static_cast<void>(read_output(*process, true));
  process->channel.end();  // calls that are answered are not in flight any more
  WorkerExit exit = describe(*process, status);
  const bool crash = publish(*process, exit);
  if (!process->is_reaped) leaving_.push_back(process);
  if (!crash || !options_.on_exit) return;
  try {
    options_.on_exit(exit);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a host's callback must not end supervision
  }
}

// Returns whether the end is one that the host has to hear of.
bool WorkerImpl::publish(WorkerProcess& process, WorkerExit& exit) {
  Lock lock(mutex_);
  const bool crash = !is_peaceful(process, exit);
  exit.next = "the next call starts it again";
  if (crash) {
    const auto now = Clock::now();
    const bool is_kill = exit.cause == WorkerExitCause::by_host;
    const bool has_failed = state_ == WorkerState::starting && !is_kill;
    ++exits_;
    if (!is_kill) count_crash(now);
    const bool spent = is_budget_spent();
    if (state_ == WorkerState::closed) {
      exit.next = "the host has closed it";
    } else if (spent) {
      exit.next = quarantine_in_words();
    } else if (has_failed) {
      exit.next = "it did not start; Worker::start or a WorkerGraph's next call tries again";
    }
    if (state_ != WorkerState::closed) {
      state_ = spent        ? WorkerState::quarantined
               : has_failed ? WorkerState::failed
                            : WorkerState::missing;
    }
    exit.text = "worker \"" + options_.name + "\": " + exit.text;
    reason_ = exit.text + "; " + exit.next;
    last_exit_ = exit;
  }
  process.end_text = crash ? reason_ : exit.text;
  process.ended = true;
  if (process_.get() == &process) process_.reset();
  std::erase_if(lent_, [](const auto& block) { return block->is_private; });
  auto passed = std::exchange(descriptors_, decltype(descriptors_)());
  changed_.notify_all();
  lock.unlock();
  for (auto& one : passed) closer_->close(std::move(one.second));
  if (crash) tell(Severity::error, exit.text + "; " + exit.next);
  return crash;
}

}  // namespace ctxbroker::detail
