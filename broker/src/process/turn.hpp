// SPDX-License-Identifier: Apache-2.0
// A lock for what runs foreign code: the others wait for it with a limit, and learn whose code they
// wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ctxbroker::detail {

// Whose code runs during a turn. The texts are static or of lasting().
struct TurnUser {
  const char* tenant = "";
  const char* owner = "";     // the library's path, or the plug-in's name
  const char* function = "";  // "constructor", "activate"
};

class Turns {
 private:
  friend class Turn;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread::id thread_{};  // that has the turn
  unsigned depth_ = 0;
  TurnUser user_{};  // the innermost
};

// One thread at a time has a turn, and may take it again meanwhile.
class Turn {
 public:
  // Waits for other threads' turns, at most for `limit`. Zero: without a limit.
  Turn(Turns& turns, const TurnUser& user, std::chrono::milliseconds limit) noexcept;
  // Does not wait.
  Turn(Turns& turns, const TurnUser& user, std::try_to_lock_t) noexcept;
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  explicit operator bool() const noexcept { return has_it_; }
  // With the turn: returns whether this thread had it already.
  bool is_nested() const noexcept { return is_nested_; }
  // Without the turn: who had it when the wait ended.
  const TurnUser& other() const noexcept { return before_; }

 private:
  template <typename Wait>
  Turn(Turns& turns, const TurnUser& user, const Wait& wait) noexcept;

  Turns& turns_;
  TurnUser before_{};
  bool has_it_ = false;
  bool is_nested_ = false;
};

}  // namespace ctxbroker::detail
