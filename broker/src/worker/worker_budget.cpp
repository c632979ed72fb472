// SPDX-License-Identifier: Apache-2.0
// How often a worker's processes may end, and what comes of it.
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <string>
#include <utility>

#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

// One is forgiven for each quiet interval, and whatever is older than the window.
void WorkerImpl::count_crash(Clock::time_point now) {
  if (!crashes_.empty() && options_.quiet_interval.count() > 0) {
    const auto quiet = static_cast<std::size_t>((now - crashes_.back()) / options_.quiet_interval);
    crashes_.erase(crashes_.begin(), crashes_.begin() + static_cast<std::ptrdiff_t>(
                                                            std::min(quiet, crashes_.size())));
  }
  std::erase_if(crashes_, [&](auto at) { return now - at > options_.crash_window; });
  crashes_.push_back(now);
}

bool WorkerImpl::is_budget_spent() const {
  return options_.crash_limit != 0 && crashes_.size() >= options_.crash_limit;
}

std::string WorkerImpl::quarantine_in_words() const {
  return "it has ended " + std::to_string(crashes_.size()) + " times within " +
         std::to_string(options_.crash_window.count()) +
         " ms, so it is quarantined until Worker::pardon";
}

void WorkerImpl::pardon() {
  const Lock lock(mutex_);
  crashes_.clear();
  if (state_ != WorkerState::quarantined && state_ != WorkerState::failed) return;
  state_ = WorkerState::missing;
  reason_.clear();
}

bool WorkerImpl::follow(const WorkerImpl& before, std::atomic<bool>& in_charge) {
  const std::scoped_lock both(mutex_, before.mutex_);
  if (state_ != WorkerState::ready) return false;
  in_charge = true;
  crashes_ = before.crashes_;
  exits_ = before.exits_.load();
  last_exit_ = before.last_exit_;
  return true;
}

void WorkerImpl::count_end_of(const WorkerImpl& other) {
  const std::scoped_lock both(mutex_, other.mutex_);
  if (!other.last_exit_) return;
  last_exit_ = other.last_exit_;
  ++exits_;
  count_crash(Clock::now());
  if (!is_budget_spent() || state_ == WorkerState::closed) return;
  state_ = WorkerState::quarantined;
  reason_ = last_exit_->text + "; " + quarantine_in_words();
}

// With the lock. The process may live, but it is of no use.
void WorkerImpl::end_in_failure(const Process& process, std::string why) {
  state_ = WorkerState::failed;
  reason_ = std::move(why);
  if (process) {
    process->peaceful = true;
    if (!process->asked) {
      process->asked = WorkerExitCause::by_host;
      process->killed_at = Clock::now();
    }
    ::syscall(SYS_pidfd_send_signal, process->pidfd.get(), SIGKILL, nullptr, 0);
    wake();
  }
  changed_.notify_all();
}

void WorkerImpl::give_up(const std::string& why) noexcept {
  try {
    {
      const Lock lock(mutex_);
      if (state_ != WorkerState::missing && state_ != WorkerState::ready) return;
      end_in_failure(process_, "worker \"" + options_.name + "\": " + why);
    }
    tell(Severity::error, why);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): then nobody hears why
  }
}

}  // namespace ctxbroker::detail
