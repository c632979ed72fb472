// SPDX-License-Identifier: Apache-2.0
#include "worker/done_jobs.hpp"

#include <atomic>

#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

void DoneJobs::listen(std::shared_ptr<LentBlock> board, bool lost_are_done) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  board_ = std::move(board);
  lost_are_done_ = lost_are_done;
  jobs_.clear();
}

// If the list is full, the oldest job is given up. A process that says which jobs are done never
// has so many open ones.
void DoneJobs::add(std::uint64_t in_worker, std::uint64_t job) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  if (jobs_.size() == most_jobs) jobs_.erase(jobs_.begin());
  jobs_.push_back({in_worker, job});
  tell_until_last();
}

void DoneJobs::tell(std::uint64_t job) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  tell_those([&](const Job& one) { return one.job == job; });
}

void DoneJobs::look() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  tell_until_last();
}

// The host may add a job after this that it has submitted before. So `last_` stays.
void DoneJobs::end() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  board_.reset();
  last_ = lost_are_done_ ? UINT64_MAX : 0;
  tell_until_last();
  jobs_.clear();
}

void DoneJobs::forget() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

void DoneJobs::stop() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  tell_ = nullptr;
}

template <typename IsDone>
void DoneJobs::tell_those(const IsDone& is_done) noexcept {
  std::erase_if(jobs_, [&](const Job& one) {
    if (!is_done(one)) return false;
    if (tell_) tell_(one.job);
    return true;
  });
}

void DoneJobs::tell_until_last() noexcept {
  if (board_) {
    auto* const board = reinterpret_cast<DoneBoard*>(board_->pages->begin());
    last_ = std::atomic_ref(*board).load();
  }
  tell_those([&](const Job& one) { return one.in_worker <= last_; });
}

}  // namespace ctxbroker::detail
