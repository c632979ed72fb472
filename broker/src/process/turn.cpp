// SPDX-License-Identifier: Apache-2.0
#include "process/turn.hpp"

namespace ctxbroker::detail {

// `wait` is given the lock and what to wait for, and says whether that is so.
template <typename Wait>
Turn::Turn(Turns& turns, const TurnUser& user, const Wait& wait) noexcept : turns_(turns) {
  std::unique_lock lock(turns.mutex_);
  const std::thread::id here = std::this_thread::get_id();
  has_it_ = wait(lock, [&] { return turns.depth_ == 0 || turns.thread_ == here; });
  before_ = turns.user_;
  if (!has_it_) return;
  is_nested_ = turns.depth_ != 0;
  turns.thread_ = here;
  turns.user_ = user;
  ++turns.depth_;
}

Turn::Turn(Turns& turns, const TurnUser& user, std::chrono::milliseconds limit) noexcept
    : Turn(turns, user, [&](std::unique_lock<std::mutex>& lock, const auto& is_free) {
        if (limit > std::chrono::milliseconds::zero()) {
          return turns.ended_.wait_for(lock, limit, is_free);
        }
        turns.ended_.wait(lock, is_free);
        return true;
      }) {}

Turn::Turn(Turns& turns, const TurnUser& user, std::try_to_lock_t) noexcept
    : Turn(turns, user,
           [](std::unique_lock<std::mutex>&, const auto& is_free) { return is_free(); }) {}

Turn::~Turn() {
  if (!has_it_) return;
  {
    const std::lock_guard lock(turns_.mutex_);
    turns_.user_ = before_;
    if (--turns_.depth_ != 0) return;
  }
  turns_.ended_.notify_all();
}

}  // namespace ctxbroker::detail
