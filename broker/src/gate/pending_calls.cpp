// SPDX-License-Identifier: Apache-2.0
#include "gate/pending_calls.hpp"

namespace ctxbroker::detail {

bool PendingCalls::begin(What what) noexcept {
  const std::lock_guard lock(mutex_);
  if (refusing_) return false;
  ++count_of(what);
  return true;
}

void PendingCalls::end(What what) noexcept {
  const std::lock_guard lock(mutex_);
  --count_of(what);
  changed_.notify_all();
}

void PendingCalls::mark_graph() noexcept {
  const std::lock_guard lock(mutex_);
  ++in_graphs_;
}

void PendingCalls::unmark_graph() noexcept {
  const std::lock_guard lock(mutex_);
  --in_graphs_;
}

bool PendingCalls::any() noexcept {
  const std::lock_guard lock(mutex_);
  return in_graphs_ != 0 || counts_ != decltype(counts_){};
}

std::string PendingCalls::wait(std::chrono::milliseconds limit) {
  using std::chrono::steady_clock;
  // The destructor of an object that somebody forgot never runs.
  constexpr std::chrono::milliseconds limit_of_objects(2000);
  std::unique_lock lock(mutex_);
  const auto begin = steady_clock::now();
  const auto wait_for = [&](What what, std::chrono::milliseconds time) {
    const auto is_over = [&] { return count_of(what) == 0; };
    if (time > std::chrono::milliseconds::zero()) {
      changed_.wait_until(lock, begin + time, is_over);
    } else {
      changed_.wait(lock, is_over);
    }
  };
  // Its functions stay where they are for good, so there is nothing to wait for.
  if (in_graphs_ != 0) return "graphs have host functions of it";
  wait_for(What::host_function, limit);
  if (count_of(What::host_function) == 0) {
    wait_for(What::user_object,
             limit > std::chrono::milliseconds::zero() ? limit : limit_of_objects);
  }
  std::string left;
  const auto add = [&](What what, const char* words) {
    if (count_of(what) == 0) return;
    left += (left.empty() ? "" : ", and ") + std::to_string(count_of(what)) + words;
  };
  add(What::host_function, " host function(s) of it wait in a stream or are running");
  add(What::user_object, " user object(s) have a destructor of it that has not run");
  refusing_ = left.empty();
  return left;
}

void PendingCalls::admit() noexcept {
  const std::lock_guard lock(mutex_);
  refusing_ = false;
}

}  // namespace ctxbroker::detail
