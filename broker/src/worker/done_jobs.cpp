// SPDX-License-Identifier: Apache-2.0
#include "worker/done_jobs.hpp"

#include <atomic>

#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

void DoneJobs::listen(std::shared_ptr<LentBlock> board, bool lost_are_done) noexcept {
  const std::lock_guard lock(mutex_);
  board_ = std::move(board);
  lost_are_done_ = lost_are_done;
  jobs_.fill({});
}

void DoneJobs::add(std::uint64_t in_worker, std::uint64_t job) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  jobs_[in_worker % jobs_.size()] = {in_worker, job};
  last_ = in_worker;
  look_with_lock();
}

void DoneJobs::tell(std::uint64_t job) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  if (tell_) tell_(job);
}

void DoneJobs::tell_answered(std::uint64_t in_worker) noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  tell_those([&](const Job& one) { return one.in_worker == in_worker; });
}

void DoneJobs::look() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  look_with_lock();
}

void DoneJobs::look_with_lock() noexcept {
  if (!board_) return;
  auto* const board = reinterpret_cast<std::uint64_t*>(board_->memory.get());
  tell_those([&](const Job& one) {
    const std::atomic_ref last_there(board[one.in_worker % jobs_.size()]);
    return last_there.load(std::memory_order_acquire) >= one.in_worker;
  });
}

void DoneJobs::lose() noexcept {
  if (!is_wanted_) return;
  const std::lock_guard lock(mutex_);
  if (lost_are_done_) tell_those([](const Job&) { return true; });
  jobs_.fill({});
}

void DoneJobs::stop() noexcept {
  const std::lock_guard lock(mutex_);
  tell_ = nullptr;
}

// In the order in which they were submitted.
template <typename IsDone>
void DoneJobs::tell_those(const IsDone& is_done) noexcept {
  for (std::uint64_t i = 1; i <= jobs_.size(); ++i) {
    Job& one = jobs_[(last_ + i) % jobs_.size()];
    if (one.job == 0 || !is_done(one)) continue;
    const std::uint64_t job = std::exchange(one, {}).job;
    if (tell_) tell_(job);
  }
}

}  // namespace ctxbroker::detail
