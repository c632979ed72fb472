// SPDX-License-Identifier: Apache-2.0
// Supervision: starts a worker's processes and watches them. worker_exits.cpp says how they end.
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
#include <cstring>
#include <system_error>
#include <utility>

#include "plugin/foreign_text.hpp"
#include "process/child.hpp"
#include "process/own_files.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::chrono::milliseconds tick{100};
constexpr std::chrono::milliseconds short_tick{2};  // while a process is about to end
constexpr std::size_t most_output = 4096;
constexpr unsigned most_lines = 200;
constexpr std::size_t most_not_closed = 64;  // descriptors. Then no more are received

// A process that cannot be looked at has gone, as far as anybody can tell.
bool is_dying(int id) {
  const ProcessLook look = look_at(id);
  return look.is_dying || look.state == '?';
}

void limit(int id, int what, std::uint64_t value) noexcept {
  const rlimit both{value, value};
  ::prlimit(id, static_cast<__rlimit_resource>(what), &both, nullptr);
}

}  // namespace

WorkerProcess::WorkerProcess(const Shape& shape, Clock::duration spin, std::function<void()> look,
                             std::shared_ptr<Closer> closes)
    : closer(std::move(closes)),
      memory_file(sealed_memory("ctxbroker-worker", channel_bytes(shape))),
      memory(memory_file.get(), channel_bytes(shape)),
      channel(memory.get(), shape, spin, std::move(look)) {}

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
      if (close_wanted_) break;
      start = std::exchange(start_wanted_, false);
    }
    if (!start) {
      pollfd waiting{wake_.get(), POLLIN, 0};
      wait_for({&waiting, 1}, std::chrono::milliseconds(-1));
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
      watch(process);
    } catch (const std::exception& error) {  // no memory for what there is to tell
      ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
      finish(process, reap(*process, kill_patience));
    }
  }
  see_off();
}

// Waits for one of these files, or for the time, which may be -1. Reaps the leaving processes that
// have gone. One that is traced has ended, so its pidfd says nothing more.
void WorkerImpl::wait_for(std::span<pollfd> files, std::chrono::milliseconds time) noexcept {
  polled_.assign(files.begin(), files.end());
  for (const Process& process : leaving_) {
    polled_.push_back({process->is_traced ? -1 : process->pidfd.get(), POLLIN, 0});
    if (process->is_traced && (time > tick || time.count() < 0)) time = tick;
  }
  ::poll(polled_.data(), polled_.size(), static_cast<int>(time.count()));
  std::copy_n(polled_.begin(), files.size(), files.begin());
  std::erase_if(leaving_, [](const Process& process) {
    static_cast<void>(reap(*process, std::chrono::milliseconds(0)));
    return process->is_reaped;
  });
}

void WorkerImpl::spawn() {
  leaving_.reserve(leaving_.size() + 1);
  polled_.reserve(leaving_.size() + 1 + most_polled);
  auto process = std::make_shared<WorkerProcess>(
      shape_, options_.spin, [this] { wake(); }, closer_);
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

void WorkerImpl::watch(const Process& watched) {
  WorkerProcess& process = *watched;
  for (bool is_ending = false;;) {
    const bool reads = !process.socket_ended && closer_->waiting() <= most_not_closed;
    std::array<pollfd, most_polled> files{{{process.pidfd.get(), POLLIN, 0},
                                           {reads ? process.socket.get() : -1, POLLIN, 0},
                                           {process.output.get(), POLLIN, 0},
                                           {wake_.get(), POLLIN, 0}}};
    wait_for(files, is_ending ? short_tick : tick);
    if (files[0].revents != 0) return finish(watched, reap(process, kill_patience));
    const bool is_rung = files[3].revents != 0;
    if (is_rung) {
      std::uint64_t rung = 0;
      static_cast<void>(!::read(wake_.get(), &rung, sizeof rung));
    }
    if (files[2].revents != 0 && !read_output(process, false)) process.output.close();
    if (files[1].revents != 0) read_packets(process);
    if (Clock::now() - process.looked_at >= tick) {
      look_for_hang(process);
      reap_siblings(process);
    }
    is_ending = is_about_to_end(process);
    if ((is_rung || is_ending) && finish_early(watched)) return;
    const Lock lock(mutex_);
    if (process.asked && Clock::now() - process.killed_at > kill_patience) break;
  }
  finish(watched, {});
}

void WorkerImpl::read_packets(WorkerProcess& process) {
  for (int count = 0; count < 64; ++count) {
    const Received received = receive_packet(process.socket.get(), packet_);
    Descriptor passed = std::move(packet_.descriptor);
    const bool has_passed = passed.get() >= 0;
    const bool has_passed_memory = has_passed && is_memory(passed.get());
    if (has_passed && (received != Received::packet || !has_passed_memory ||
                       packet_.head.kind != PacketKind::descriptor)) {
      closer_->close(std::exchange(passed, Descriptor()));
    }
    switch (received) {
      case Received::nothing:
        return;
      case Received::ended:
        process.socket_ended = true;
        // A process that ends closes its socket before the pidfd tells of it.
        if (is_dying(process.id)) return;
        return request_kill(process, WorkerExitCause::lie, "it closed its socket");
      case Received::bad:
        process.socket_ended = true;
        return request_kill(process, WorkerExitCause::lie, "it sent a packet that is none");
      case Received::packet:
        break;
    }
    if (packet_.head.kind == PacketKind::notification && !has_passed &&
        packet_.head.bytes <= shape_.message_bytes) {
      try {
        if (options_.on_notification) {
          options_.on_notification(static_cast<std::uint32_t>(packet_.head.number), packet_.body(),
                                   packet_.head.bytes);
        }
      } catch (...) {  // NOLINT(bugprone-empty-catch): a host's callback must not end supervision
      }
    } else if (packet_.head.kind == PacketKind::descriptor && has_passed && !has_passed_memory) {
      process.socket_ended = true;
      return request_kill(process, WorkerExitCause::lie,
                          "it passed a descriptor that is not memory");
    } else if (packet_.head.kind == PacketKind::descriptor && has_passed &&
               packet_.head.bytes == 0) {
      keep_descriptor(process, packet_.head.number, std::move(passed));
    } else {
      closer_->close(std::move(passed));
      process.socket_ended = true;
      return request_kill(process, WorkerExitCause::lie,
                          "it sent a packet of a kind that there is not");
    }
  }
}

// In the place of the oldest one, which nobody has taken.
void WorkerImpl::keep_descriptor(WorkerProcess& process, std::uint64_t number,
                                 Descriptor descriptor) {
  Descriptor oldest;
  {
    const Lock lock(mutex_);
    process.has_descriptors = true;
    auto& place = descriptors_[next_descriptor_++ % descriptors_.size()];
    oldest = std::exchange(place.second, std::move(descriptor));
    place.first = number;
  }
  closer_->close(std::move(oldest));
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
  if (process.channel.touched_idle_cell()) {
    return request_kill(process, WorkerExitCause::lie,
                        "it answered a call twice, or one that nobody has made");
  }
  const std::uint32_t beat = process.channel.heartbeat();
  const bool runs = !process.channel.busy() || beat != process.heartbeat;
  if (runs || beat == 0) {  // until it beats for the first time, the start's timeout holds
    process.heartbeat = beat;
    process.beat_at = now;
  }
  if (runs || options_.heartbeat_timeout.count() == 0 || is_dying(process.id)) return;
  if (look_at(process.id).state == 'T') {
    return request_kill(process, WorkerExitCause::stopped, "it was stopped by a signal");
  }
  if (now - process.beat_at > options_.heartbeat_timeout) {
    request_kill(
        process, WorkerExitCause::stopped,
        "it did not run for " + std::to_string(options_.heartbeat_timeout.count()) + " ms");
  }
}

}  // namespace ctxbroker::detail
