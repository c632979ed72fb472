// SPDX-License-Identifier: Apache-2.0
// Supervision: starts a worker's processes, watches them, and says how they ended.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "driver/driver_file.hpp"
#include "plugin/foreign_text.hpp"
#include "process/child.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::milliseconds tick{100};
constexpr std::chrono::seconds kill_patience{2};
constexpr std::size_t most_output = 4096;
constexpr unsigned most_lines = 200;

bool is_ready(int descriptor, short events, int milliseconds) noexcept {
  pollfd waiting{descriptor, events, 0};
  return ::poll(&waiting, 1, milliseconds) > 0;
}

// The letter and the flags of a process's main thread in /proc; '?' when they cannot be read.
std::pair<char, unsigned long> look_at(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {'?', 0};
  std::istringstream rest(text.substr(name_end + 1));
  char state = '?';
  long parent = 0, group = 0, session = 0, terminal = 0, foreground = 0;
  unsigned long flags = 0;
  rest >> state >> parent >> group >> session >> terminal >> foreground >> flags;
  return {state, flags};
}

bool is_dying(int id) {
  constexpr unsigned long exiting = 4;  // PF_EXITING
  const auto [state, flags] = look_at(id);
  return state == '?' || state == 'Z' || state == 'X' || (flags & exiting) != 0;
}

void limit(int id, int what, std::uint64_t value) noexcept {
  const rlimit both{value, value};
  ::prlimit(id, static_cast<__rlimit_resource>(what), &both, nullptr);
}

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
    // What a process writes over these names is no name: '?' stands for bytes that are no text.
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
      std::string name;
      for (std::uint64_t count = 0; events >> name >> count;) {
        if (name == "oom_kill") return count;
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): then nobody counts
  }
  return 0;
}

WorkerProcess::WorkerProcess(const Shape& shape, Clock::duration spin)
    : memory_file(sealed_memory("ctxbroker-worker", channel_bytes(shape))),
      memory(memory_file.get(), channel_bytes(shape)),
      channel(memory.get(), shape, spin) {}

void WorkerImpl::wake() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void WorkerImpl::tell(Severity severity, std::string text) const {
  recorder_.record(severity, host_tenant, options_.name, "worker", std::move(text));
}

void WorkerImpl::supervise() noexcept {
  for (;;) {
    Process process;
    bool start = false;
    {
      const Lock lock(mutex_);
      if (close_wanted_) return;
      start = std::exchange(start_wanted_, false);
    }
    if (!start) {
      static_cast<void>(is_ready(wake_.get(), POLLIN, -1));
      std::uint64_t rung = 0;
      static_cast<void>(!::read(wake_.get(), &rung, sizeof rung));
      continue;
    }
    try {
      spawn();
      const Lock lock(mutex_);
      process = process_;
    } catch (const std::exception& error) {
      const Lock lock(mutex_);
      spawn_error_ = error.what();
      changed_.notify_all();
      continue;
    }
    try {
      watch(*process);
    } catch (const std::exception& error) {  // no memory for what there is to tell
      ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
      finish(*process, is_ready(process->pidfd.get(), POLLIN, 2000));
    }
  }
}

void WorkerImpl::spawn() {
  auto process = std::make_shared<WorkerProcess>(shape_, options_.spin);
  std::array<int, 2> ends{-1, -1};
  std::array<int, 2> pipe{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a socket");
  }
  process->socket = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  process->output = Descriptor(pipe[0]);
  const Descriptor their_output(pipe[1]);
  ::fcntl(process->output.get(), F_SETFL, O_NONBLOCK);

  ChildOptions child;
  child.output = their_output.get();
  child.lent = theirs.get();
  child.nothing_else = true;
  child.environment = worker_environment(options_.environment);
  const auto program = options_.program.empty() ? beside_this_library("ctxbroker/ctxbroker-worker")
                                                : options_.program;
  process->oom_kills = oom_kills();
  process->id = start_child(program, {options_.name}, child);
  process->pidfd = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process->id, 0)));
  if (process->pidfd.get() < 0) {
    const int error = errno;
    ::kill(-process->id, SIGKILL);
    ::waitpid(process->id, nullptr, 0);
    throw std::system_error(error, std::generic_category(), "pidfd_open");
  }
  limit(process->id, RLIMIT_CORE, options_.core_limit);
  if (options_.memory_limit != 0) limit(process->id, RLIMIT_DATA, options_.memory_limit);
  if (options_.file_limit != 0) limit(process->id, RLIMIT_NOFILE, options_.file_limit);

  // The worker waits for this, so the limits hold before the module is loaded.
  const std::string module = options_.module.string();
  Hello hello;
  hello.shape = shape_;
  hello.threads = options_.threads;
  hello.spin_us = static_cast<std::uint32_t>(options_.spin.count());
  hello.no_network = options_.network ? 0 : 1;
  hello.no_other_processes = options_.other_processes ? 0 : 1;
  std::vector<char> body(sizeof hello + module.size());
  std::memcpy(body.data(), &hello, sizeof hello);
  std::copy(module.begin(), module.end(), body.begin() + sizeof hello);
  PacketHead head;
  head.bytes = static_cast<std::uint32_t>(body.size());
  // If this fails, the process is at its end, which the supervision tells.
  static_cast<void>(
      send_packet(process->socket.get(), head, body.data(), process->memory_file.get()));
  process->beat_at = process->looked_at = Clock::now();

  const Lock lock(mutex_);
  if (state_ != WorkerState::starting) {  // it came so late that nobody waits for it any more
    process->peaceful = true;
    ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
  }
  process_ = std::move(process);
  changed_.notify_all();
}

void WorkerImpl::watch(WorkerProcess& process) {
  for (;;) {
    std::array<pollfd, 4> files{{{process.pidfd.get(), POLLIN, 0},
                                 {process.socket_ended ? -1 : process.socket.get(), POLLIN, 0},
                                 {process.output.get(), POLLIN, 0},
                                 {wake_.get(), POLLIN, 0}}};
    ::poll(files.data(), files.size(), static_cast<int>(tick.count()));
    if (files[0].revents != 0) return finish(process, true);
    if (files[3].revents != 0) {
      std::uint64_t rung = 0;
      static_cast<void>(!::read(wake_.get(), &rung, sizeof rung));
    }
    if (files[2].revents != 0 && !read_output(process, false)) process.output.close();
    if (files[1].revents != 0) read_packets(process);
    if (Clock::now() - process.looked_at >= tick) look_for_hang(process);
    const Lock lock(mutex_);
    if (process.asked && Clock::now() - process.asked_at > kill_patience) break;
  }
  finish(process, false);
}

void WorkerImpl::read_packets(WorkerProcess& process) {
  for (int count = 0; count < 64; ++count) {
    switch (receive_packet(process.socket.get(), packet_)) {
      case Received::nothing:
        return;
      case Received::ended:
        // A process that ends closes its socket before the pidfd tells of it.
        if (is_dying(process.id)) {
          process.socket_ended = true;
          return;
        }
        return ask_end(process, WorkerEndCause::lie, "it closed its socket");
      case Received::bad:
        return ask_end(process, WorkerEndCause::lie, "it sent a packet that is none");
      case Received::packet:
        break;
    }
    if (packet_.head.kind == PacketKind::notification && packet_.descriptor.get() < 0 &&
        packet_.head.bytes <= shape_.message_bytes) {
      try {
        if (options_.on_notification) {
          options_.on_notification(static_cast<std::uint32_t>(packet_.head.number), packet_.body(),
                                   packet_.head.bytes);
        }
      } catch (...) {  // NOLINT(bugprone-empty-catch): a host's callback must not end supervision
      }
    } else if (packet_.head.kind == PacketKind::descriptor && packet_.descriptor.get() >= 0 &&
               packet_.head.bytes == 0) {
      const Lock lock(mutex_);
      descriptors_[next_descriptor_++ % descriptors_.size()] = {packet_.head.number,
                                                                std::move(packet_.descriptor)};
    } else {
      return ask_end(process, WorkerEndCause::lie, "it sent a packet of a kind that there is not");
    }
  }
}

// Returns false when nobody holds the other end any more.
bool WorkerImpl::read_output(WorkerProcess& process, bool all) {
  std::array<char, 16384> piece{};
  for (int round = 0; round < (all ? 16 : 1); ++round) {
    const ssize_t got = ::read(process.output.get(), piece.data(), piece.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    for (ssize_t i = 0; i < got; ++i) {
      const char c = piece[static_cast<std::size_t>(i)];
      if (c != '\n' && process.line.size() < 1024) {
        process.line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
      }
      if (c != '\n' || process.lines_told >= most_lines) continue;
      if (++process.lines_told == most_lines) process.line = "... (it printed more)";
      tell(Severity::debug, "it printed: " + take_message(process.line.c_str()));
      process.line.clear();
    }
    process.last_output.append(piece.data(), static_cast<std::size_t>(got));
    if (process.last_output.size() > most_output) {
      process.last_output.erase(0, process.last_output.size() - most_output);
    }
  }
  return true;
}

void WorkerImpl::look_for_hang(WorkerProcess& process) {
  const auto now = Clock::now();
  process.looked_at = now;
  if (process.channel.touched_idle_slot()) {
    return ask_end(process, WorkerEndCause::lie,
                   "it answered a call twice, or one that nobody has made");
  }
  const std::uint32_t beat = process.channel.heartbeat();
  if (!process.channel.busy() || beat != process.heartbeat) {
    process.heartbeat = beat;
    process.beat_at = now;
    return;
  }
  if (options_.heartbeat_timeout.count() == 0 || is_dying(process.id)) return;
  if (look_at(process.id).first == 'T') {
    return ask_end(process, WorkerEndCause::stopped, "it was stopped by a signal");
  }
  if (now - process.beat_at > options_.heartbeat_timeout) {
    ask_end(process, WorkerEndCause::stopped,
            "it did not run for " + std::to_string(options_.heartbeat_timeout.count()) + " ms");
  }
}

WorkerEnd WorkerImpl::describe(WorkerProcess& process, int status, bool reaped) {
  WorkerEnd end;
  end.process_id = process.id;
  end.in_flight = process.channel.in_flight();
  end.running = read_running(process.memory.get());
  std::replace(process.last_output.begin(), process.last_output.end(), '\0', ' ');
  end.output = take_message(process.last_output.c_str());
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  std::optional<WorkerEndCause> asked;
  std::string text;
  {
    const Lock lock(mutex_);
    asked = process.asked;
    text = process.asked_text;
  }
  // What was asked for is the cause, unless the process was faster.
  if (asked && (!reaped || status == -1 || end.signal == SIGKILL)) {
    end.cause = *asked;
    if (!reaped) text += ", and the system has not ended it yet";
  } else if (end.signal != 0) {
    end.cause = WorkerEndCause::signal;
    text = "it was ended by " + signal_name(end.signal);
    if (end.signal == SIGKILL ? oom_kills() > process.oom_kills : process.channel.memory_short()) {
      end.cause = WorkerEndCause::out_of_memory;
      text += end.signal == SIGKILL ? ", because the system was short of memory"
                                    : " when no more memory was to be had";
    }
  } else if (status == -1) {
    text = "it ended; how is not known, because other code of the host waited for it";
  } else {
    text = "it ended itself with exit status " + std::to_string(end.exit_status);
  }
  end.text = text + in_words(end.running) + in_words(end.in_flight);
  return end;
}

void WorkerImpl::finish(WorkerProcess& process, bool reaped) {
  ::kill(-process.id, SIGKILL);  // its children, as far as they are still in its group
  int status = 0;
  if (reaped && ::waitpid(process.id, &status, 0) != process.id) status = -1;
  if (process.output.get() >= 0) static_cast<void>(read_output(process, true));
  WorkerEnd end = describe(process, status, reaped);
  const bool crash = publish(process, end);
  process.channel.end();
  // It dies when the system lets it; somebody has to wait for it then.
  if (!reaped) std::thread([id = process.id] { ::waitpid(id, nullptr, 0); }).detach();
  if (!crash || !options_.on_end) return;
  try {
    options_.on_end(end);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a host's callback must not end supervision
  }
}

// Returns whether the end is one that the host has to hear of.
bool WorkerImpl::publish(WorkerProcess& process, WorkerEnd& end) {
  Lock lock(mutex_);
  const bool crash = !process.peaceful;
  end.next = "the next call starts it again";
  if (crash) {
    const auto now = Clock::now();
    ++ends_;
    if (end.cause != WorkerEndCause::by_host) {
      count_crash(now);
    }
    const bool spent = is_budget_spent();
    if (spent) {
      end.next = quarantine_in_words();
    } else if (state_ == WorkerState::starting) {
      end.next = "it did not start; Worker::start or a WorkerGraph's next call tries again";
    }
    if (state_ != WorkerState::closed) {
      state_ = spent                             ? WorkerState::quarantined
               : state_ == WorkerState::starting ? WorkerState::failed
                                                 : WorkerState::missing;
    }
    end.text = "worker \"" + options_.name + "\": " + end.text;
    reason_ = end.text + "; " + end.next;
    last_end_ = end;
  }
  process.end_text = crash ? reason_ : end.text;
  process.ended = true;
  if (process_.get() == &process) process_.reset();
  for (auto& one : descriptors_) one = {0, Descriptor()};
  changed_.notify_all();
  lock.unlock();
  if (crash) tell(Severity::error, end.text + "; " + end.next);
  return crash;
}

}  // namespace ctxbroker::detail
