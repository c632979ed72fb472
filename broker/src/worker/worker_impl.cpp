// SPDX-License-Identifier: Apache-2.0
// Calls into a worker, and who may make them.
#include "worker/worker_impl.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"
#include "observe/system_failure.hpp"
#include "plugin/foreign_text.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

Error refused(const std::string& name, const std::string& why) {
  return {ErrorKind::wrong_state, "worker \"" + name + "\": " + why};
}

Shape shape_of(const WorkerOptions& options) {
  return {options.calls_at_once,
          static_cast<std::uint32_t>((options.message_bytes + 63) / 64 * 64)};
}

// Checks the options, and makes paths that hold wherever the host goes.
WorkerOptions checked(WorkerOptions options) {
  const auto check_option = [](bool good, const char* text) {
    if (!good) throw Error(ErrorKind::invalid_argument, text);
  };
  check_option(!options.name.empty() && options.name.find('\0') == std::string::npos,
               "WorkerOptions::name is empty or holds a zero byte");
  check_option(options.module.empty() != options.program.empty(),
               "give WorkerOptions::module or WorkerOptions::program, and not both");
  check_option(options.message_bytes >= 256 && options.message_bytes <= most_message_bytes,
               "WorkerOptions::message_bytes must be 256 to 131072");
  check_option(options.calls_at_once >= 1 && options.calls_at_once <= most_cells,
               "WorkerOptions::calls_at_once must be 1 to 64");
  check_option(options.threads >= 1 && options.threads <= most_threads,
               "WorkerOptions::threads must be 1 to 64");
  check_option(options.spin.count() >= 0 && options.spin <= std::chrono::seconds(1),
               "WorkerOptions::spin must be 0 to 1 second");
  check_option(options.start_timeout.count() > 0, "WorkerOptions::start_timeout must be positive");
  check_option(options.call_timeout.count() > 0, "WorkerOptions::call_timeout must be positive");
  check_option(
      options.heartbeat_timeout.count() >= 0 && options.crash_window.count() >= 0 &&
          options.quiet_interval.count() >= 0,
      "WorkerOptions::heartbeat_timeout, crash_window and quiet_interval must not be negative");
  for (const std::string& variable : options.environment) {
    check_option(variable.find('=') != std::string::npos && variable.front() != '=' &&
                     variable.find('\0') == std::string::npos,
                 "WorkerOptions::environment has an entry that is not NAME=VALUE");
  }
  auto& file = options.module.empty() ? options.program : options.module;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw Error(ErrorKind::plugin_not_found,
                "worker \"" + options.name + "\": there is no file \"" + file.string() + "\"");
  }
  file = std::filesystem::absolute(file);
  return options;
}

}  // namespace

WorkerImpl::WorkerImpl(WorkerOptions options)
    : options_(checked(std::move(options))),
      shape_(shape_of(options_)),
      recorder_(options_.records),
      closer_(std::make_shared<Closer>()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) {
    const int why = errno;
    throw system_failure(
        why, "no worker can be looked after: eventfd: " + std::generic_category().message(why));
  }
  polled_.reserve(most_polled);
  try {
    supervisor_ = start_own_thread([this] {
      supervise();
      if (ends_with_thread_) delete this;
    });
  } catch (const std::system_error& error) {
    throw system_failure(error.code().value(),
                         std::string("no worker can be looked after: a thread: ") + error.what());
  }
}

std::shared_ptr<WorkerImpl> WorkerImpl::make(WorkerOptions options) {
  return {new WorkerImpl(std::move(options)), &WorkerImpl::end};
}

void WorkerImpl::request_kill(WorkerProcess& process, WorkerExitCause cause,
                              const std::string& text) {
  {
    const Lock lock(mutex_);
    if (process.ended || process.asked) return;
    process.asked = cause;
    process.asked_text = text;
    process.killed_at = Clock::now();
  }
  ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
  wake();
}

void WorkerImpl::throw_end(const Process& process) {
  Lock lock(mutex_);
  changed_.wait_for(lock, end_patience, [&] { return process->ended; });
  throw Error(ErrorKind::context_lost,
              process->ended ? process->end_text
                             : "worker \"" + options_.name + "\": " + process->asked_text,
              {.tenant = options_.name});
}

std::size_t WorkerImpl::own_call(const Process& process, const WorkerMessage& message, void* reply,
                                 std::size_t capacity, Clock::time_point deadline) {
  const auto asked = Clock::now();
  const CallResult result = process->channel.call(message, reply, capacity, deadline);
  switch (result.end) {
    case ReplyOutcome::replied:
      break;
    case ReplyOutcome::late:
      request_kill(*process, WorkerExitCause::late,
                   "a call did not end within " +
                       std::to_string(
                           std::chrono::ceil<std::chrono::milliseconds>(deadline - asked).count()) +
                       " ms");
      throw_end(process);
    case ReplyOutcome::lie:
      request_kill(*process, WorkerExitCause::lie, result.text.data());
      throw_end(process);
    case ReplyOutcome::gone:
      throw_end(process);
    case ReplyOutcome::crowded:
      throw refused(options_.name,
                    "no call ended in time, so this one was not sent; "
                    "raise WorkerOptions::calls_at_once and threads, or call less");
  }
  if (result.status >= 0) return result.bytes;
  const std::string text = result.text[0] != '\0' ? take_message(result.text.data())
                                                  : "the module returned an error without a text";
  if (result.status == CTXB_ERROR_CONTEXT_LOST) {
    request_kill(*process, WorkerExitCause::cuda_ended,
                 "it says that its CUDA context is lost: " + text);
    throw_end(process);
  }
  throw Error(
      ErrorKind::plugin_failed, text,
      {.call = message_in_words(message.type), .status = result.status, .tenant = options_.name});
}

void WorkerImpl::check_message(const WorkerMessage& message, const void* reply,
                               std::size_t capacity, std::chrono::microseconds timeout) const {
  if (message.bytes > options_.message_bytes) {
    throw Error(ErrorKind::invalid_argument, "the message has " + std::to_string(message.bytes) +
                                                 " bytes, and WorkerOptions::message_bytes is " +
                                                 std::to_string(options_.message_bytes) +
                                                 "; lend a buffer for more");
  }
  if ((message.data == nullptr && message.bytes != 0) || (reply == nullptr && capacity != 0) ||
      timeout.count() < 0) {
    throw Error(ErrorKind::invalid_argument,
                "data or reply is null although it has bytes, or the timeout is negative");
  }
}

std::size_t WorkerImpl::call_process(const Process& process, const WorkerMessage& message,
                                     void* reply, std::size_t capacity,
                                     std::chrono::microseconds timeout) {
  const Clock::duration time = timeout.count() != 0 ? timeout : options_.call_timeout;
  return own_call(process, message, reply, std::min(capacity, options_.message_bytes),
                  Clock::now() + time);
}

std::size_t WorkerImpl::call(const WorkerMessage& message, void* reply, std::size_t capacity,
                             std::chrono::microseconds timeout, Absent absent) {
  check_message(message, reply, capacity, timeout);
  return call_process(present_process(absent), message, reply, capacity, timeout);
}

std::size_t WorkerImpl::call(const std::weak_ptr<WorkerProcess>& known,
                             const WorkerMessage& message, void* reply, std::size_t capacity,
                             std::chrono::microseconds timeout) {
  check_maker();
  Process process = known.lock();
  if (!process) process = present_process(Absent::refuse);
  return call_process(process, message, reply, capacity, timeout);
}

std::weak_ptr<WorkerProcess> WorkerImpl::process() const {
  const Lock lock(mutex_);
  return process_;
}

void WorkerImpl::refuse(const std::string& why) {
  Process process;
  {
    const Lock lock(mutex_);
    process = process_;
  }
  if (!process) throw Error(ErrorKind::context_lost, "worker \"" + options_.name + "\": " + why);
  request_kill(*process, WorkerExitCause::lie, why);
  throw_end(process);
}

void WorkerImpl::start() {
  check_maker();
  static_cast<void>(ready_process(true));
}

void WorkerImpl::check_maker() const {
  if (maker_.is_this_process()) return;
  throw refused(options_.name,
                "this process was forked, and the worker is of the process that forked it; make a "
                "new Worker here");
}

WorkerImpl::Process WorkerImpl::present_process(Absent absent) {
  check_maker();
  if (absent == Absent::start) return ready_process(false);
  const Lock lock(mutex_);
  if (state_ == WorkerState::ready) return process_;
  throw Error(ErrorKind::context_lost,
              reason_.empty() ? "worker \"" + options_.name + "\": there is no process" : reason_,
              {.tenant = options_.name});
}

WorkerImpl::Process WorkerImpl::ready_process(bool asked_by_host) {
  {
    Lock lock(mutex_);
    // A call from a callback would wait for the thread that runs it.
    if (is_in_callback()) {
      throw refused(options_.name, "a callback of this worker must not call it");
    }
    const bool settled = changed_.wait_for(lock, options_.start_timeout + end_patience, [&] {
      const bool may_start = state_ == WorkerState::missing || state_ == WorkerState::failed;
      return may_start ? !process_ : state_ != WorkerState::starting;
    });
    if (!settled) throw refused(options_.name, "another thread's start does not end");
    if (state_ == WorkerState::ready) return process_;
    if (state_ == WorkerState::closed) throw refused(options_.name, "it is closed");
    if (state_ == WorkerState::quarantined) throw Error(ErrorKind::wrong_state, reason_);
    if (state_ == WorkerState::failed && !asked_by_host) {
      throw Error(ErrorKind::plugin_load, reason_);
    }
    state_ = WorkerState::starting;
    start_wanted_ = true;
    spawn_error_.clear();
  }
  wake();
  return start_process();
}

WorkerImpl::Process WorkerImpl::start_process() {
  Process process;
  std::string failure;
  try {
    {
      Lock lock(mutex_);
      // A process can end before this thread has seen it.
      changed_.wait_for(lock, options_.start_timeout, [&] {
        return process_ || !spawn_error_.empty() || state_ != WorkerState::starting;
      });
      if (!process_) {
        throw Error(ErrorKind::plugin_load, !spawn_error_.empty() ? spawn_error_
                                            : state_ != WorkerState::starting
                                                ? reason_
                                                : "the process did not start in time");
      }
      process = process_;
    }
    start_module(process);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const Lock lock(mutex_);
  start_wanted_ = false;
  if (failure.empty() && state_ == WorkerState::starting) {
    state_ = WorkerState::ready;
    reason_.clear();
    changed_.notify_all();
    return process;
  }
  if (failure.empty()) failure = reason_;
  if (state_ == WorkerState::starting) {  // the process lives, but it is of no use
    failure = "worker \"" + options_.name + "\" cannot start: " + failure;
    end_in_failure(process, failure);
  }
  throw Error(ErrorKind::plugin_load, failure);
}

void WorkerImpl::start_module(const Process& process) {
  const auto deadline = Clock::now() + options_.start_timeout;
  own_call(process, {start_type, 0, nullptr, 0}, nullptr, 0, deadline);
  std::vector<std::shared_ptr<LentBlock>> blocks;
  {
    const Lock lock(mutex_);
    blocks = lent_;
  }
  for (const auto& block : blocks) give_block(process, *block, deadline);
}

void WorkerImpl::give_block(const Process& process, const LentBlock& block,
                            Clock::time_point deadline) {
  send_descriptor(process, block.handle, block.pages->descriptor(), deadline);
  const BlockName name{block.handle, block.pages->bytes()};
  own_call(process, {lend_type, block.handle, &name, sizeof name}, nullptr, 0, deadline);
}

void WorkerImpl::send_descriptor(const Process& process, std::uint64_t number, int descriptor,
                                 Clock::time_point deadline) {
  Lock lock(mutex_);
  const bool is_leaving = process->is_leaving;  // then it must not get anything more
  lock.unlock();
  if (is_leaving) throw_end(process);
  PacketHead head;
  head.kind = PacketKind::descriptor;
  head.number = number;
  while (!send_packet(process->socket.get(), head, nullptr, descriptor)) {
    if (errno != EAGAIN || Clock::now() >= deadline) return;  // the call that follows tells why
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::shared_ptr<LentBlock> WorkerImpl::lend(std::shared_ptr<HostPages> pages, LentTo to) {
  const bool is_private = to == LentTo::this_process;
  const Process process = present_process(is_private ? Absent::refuse : Absent::start);
  auto block = std::make_shared<LentBlock>(std::move(pages));
  block->is_private = is_private;
  add_block(block);
  try {
    give_block(process, *block, Clock::now() + options_.call_timeout);
  } catch (...) {
    forget_block(block->handle);
    throw;
  }
  return block;
}

// A process that starts from now on gets it.
void WorkerImpl::add_block(const std::shared_ptr<LentBlock>& block) {
  const Lock lock(mutex_);
  if (lent_.size() >= most_lent) throw refused(options_.name, "4096 blocks are lent already");
  own_block(block);
}

// With the lock.
void WorkerImpl::own_block(const std::shared_ptr<LentBlock>& block) {
  lent_.push_back(block);
  ++lent_changes_;
  const std::lock_guard owner_lock(block->mutex);
  block->owner = weak_from_this();
  block->handle = next_handle_++;
}

void WorkerImpl::take_blocks_of(WorkerImpl& before) {
  std::vector<std::shared_ptr<LentBlock>> blocks;
  {
    const Lock lock(before.mutex_);
    blocks.swap(before.lent_);
    ++before.lent_changes_;
  }
  {
    const Lock lock(mutex_);
    lent_.reserve(lent_.size() + blocks.size());
    for (const auto& block : blocks) own_block(block);
  }
  try {
    const Process process = ready_process(false);
    const auto deadline = Clock::now() + options_.call_timeout;
    for (const auto& block : blocks) give_block(process, *block, deadline);
  } catch (...) {
    kill("it could not take over the blocks that were lent to the process before");
    throw;
  }
}

LentBlocks WorkerImpl::lent_blocks() const {
  const Lock lock(mutex_);
  LentBlocks blocks;
  blocks.changes = lent_changes_;
  for (const auto& block : lent_) {
    if (block->is_private) continue;
    blocks.all.push_back({block->pages->begin(), block->pages->bytes(), block});
  }
  return blocks;
}

void WorkerImpl::forget_block(std::uint64_t handle) noexcept {
  const Lock lock(mutex_);
  std::erase_if(lent_, [&](const auto& one) { return one->handle == handle; });
  ++lent_changes_;
}

void WorkerImpl::take_back(const LentBlock& block) noexcept {
  Process process;
  try {
    forget_block(block.handle);
    {
      const Lock lock(mutex_);
      if (state_ == WorkerState::ready) process = process_;
    }
    if (!process || is_in_callback()) return;
    const BlockName name{block.handle, block.pages->bytes()};
    own_call(process, {take_back_type, block.handle, &name, sizeof name}, nullptr, 0,
             Clock::now() + options_.call_timeout);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the process is at its end, and was told of
  }
}

bool WorkerImpl::is_lent(std::uint64_t handle, std::uint64_t bytes) const {
  const Lock lock(mutex_);
  return std::any_of(lent_.begin(), lent_.end(), [&](const auto& one) {
    return one->handle == handle && one->pages->bytes() >= bytes;
  });
}

std::uint64_t WorkerImpl::pass_descriptor(int descriptor, Absent absent) {
  if (::fcntl(descriptor, F_GETFD) < 0) {
    throw Error(ErrorKind::invalid_argument,
                std::to_string(descriptor) + " is not an open descriptor");
  }
  const Process process = present_process(absent);
  std::uint64_t number = 0;
  {
    const Lock lock(mutex_);
    number = next_handle_++;
    process->has_descriptors = true;
  }
  send_descriptor(process, number, descriptor, Clock::now() + options_.call_timeout);
  return number;
}

int WorkerImpl::take_descriptor(std::uint64_t number) {
  const Lock lock(mutex_);
  for (auto& [one, descriptor] : descriptors_) {
    if (one == number && descriptor.get() >= 0) return descriptor.release();
  }
  return -1;
}

WorkerState WorkerImpl::state() const {
  return state_;
}

std::string WorkerImpl::reason() const {
  const Lock lock(mutex_);
  return reason_;
}

std::optional<WorkerExit> WorkerImpl::last_exit() const {
  const Lock lock(mutex_);
  return last_exit_;
}

std::uint64_t WorkerImpl::exits() const {
  return exits_;
}

int WorkerImpl::process_id() const {
  const Lock lock(mutex_);
  return process_ ? process_->id : 0;
}

void WorkerImpl::kill(const std::string& reason) {
  if (!maker_.is_this_process()) return;
  Process process;
  {
    const Lock lock(mutex_);
    process = process_;
  }
  if (!process) return;
  request_kill(*process, WorkerExitCause::by_host, "the host ended it: " + reason);
  if (is_in_callback()) return;
  Lock lock(mutex_);
  changed_.wait_for(lock, end_patience, [&] { return process->ended; });
}

}  // namespace ctxbroker::detail
