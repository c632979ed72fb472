// SPDX-License-Identifier: Apache-2.0
// How a host closes a worker.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "plugin/foreign_text.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

// Lets the process end in peace. If it does not, its end is told like any other one.
void WorkerImpl::stop(const Process& process) {
  const auto deadline = Clock::now() + options_.call_timeout;
  const std::string time = std::to_string(options_.call_timeout.count()) + " ms";
  const CallResult stopped =
      process->channel.call({stop_type, 0, nullptr, 0}, nullptr, 0, deadline);
  const bool is_answered = stopped.end == ReplyOutcome::replied;
  if (stopped.end == ReplyOutcome::lie) {
    request_kill(*process, WorkerExitCause::lie, stopped.text.data());
  } else if (stopped.end == ReplyOutcome::late || stopped.end == ReplyOutcome::crowded) {
    request_kill(*process, WorkerExitCause::late, "a call did not end within " + time);
  } else if (is_answered && stopped.status < 0) {
    tell(Severity::error, "the module's stop failed: " + take_message(stopped.text.data()));
  }
  if (is_in_callback()) return;  // nobody else would notice that it ends
  const auto wait_until = [&](Clock::time_point time_point) {
    Lock lock(mutex_);
    return changed_.wait_until(lock, time_point, [&] { return process->ended; });
  };
  if (wait_until(is_answered ? deadline : Clock::now() + end_patience) || !is_answered) return;
  // If it is the system that needs so long, the process has done what it should.
  if (look_at(process->id).is_dying) return;
  request_kill(*process, WorkerExitCause::late, "it did not exit within " + time);
  wait_until(Clock::now() + end_patience);
}

void WorkerImpl::end(WorkerImpl* worker) noexcept {
  if (!worker->maker_.is_this_process()) return keep_for_ever(worker);
  worker->close();
  if (worker->is_in_callback()) {
    worker->ends_with_thread_ = true;
    worker->supervisor_.detach();
    return;
  }
  if (worker->supervisor_.joinable()) worker->supervisor_.join();  // it was closed in a callback
  delete worker;
}

void WorkerImpl::close() noexcept {
  if (!maker_.is_this_process()) return;
  Process process;
  {
    const Lock lock(mutex_);
    if (close_wanted_) return;
    if (state_ == WorkerState::ready) process = process_;
    state_ = WorkerState::closed;
    if (process) process->is_stopping = true;
    if (process_ && !process) process_->peaceful = true;
  }
  try {
    if (process) stop(process);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for words. It is ended below
  }
  {
    Lock lock(mutex_);
    close_wanted_ = true;
    process = process_;
    if (process && !process->asked) {
      process->asked = WorkerExitCause::by_host;
      process->killed_at = Clock::now();
    }
  }
  if (process) ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
  process.reset();
  wake();
  if (supervisor_.joinable() && !is_in_callback()) supervisor_.join();
  constexpr std::chrono::seconds patience{1};  // those that need longer are left behind
  closer_->wait(patience);
  recorder_.close();
}

}  // namespace ctxbroker::detail
