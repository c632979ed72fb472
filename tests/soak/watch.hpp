// SPDX-License-Identifier: Apache-2.0
// Where each thread stands, and an end for the process when one does not go on.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace ctxbroker::soak {

class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on nobody may stand still for longer than `patience`, and all must be over in `limit`:
  // else it prints where each one stands to `output` and ends the process with `stuck_status`.
  Watch(std::size_t threads, Clock::duration patience, Clock::duration limit, int output);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // `doing` is static text; `seat` is a plug-in's number, or -1.
  void stands(std::size_t thread, const char* doing, int seat) noexcept;
  void leaves(std::size_t thread) noexcept;

  static constexpr int stuck_status = 3;

 private:
  struct Place {
    std::atomic<const char*> doing{nullptr};  // null: not begun, or left
    std::atomic<int> seat{-1};
    std::atomic<Clock::rep> since{0};
  };
  void look(const std::stop_token& stop) const;
  [[noreturn]] void give_up(const char* why) const;

  std::vector<Place> places_;
  const Clock::time_point begin_ = Clock::now();
  const Clock::duration patience_, limit_;
  const int output_;
  std::jthread looking_;
};

}  // namespace ctxbroker::soak
