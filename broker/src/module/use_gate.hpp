// SPDX-License-Identifier: Apache-2.0
// Keeps things in use from being taken away. Users come and go without waiting. Whoever wants to
// take something away closes the gate, which works only while there are no users.
#pragma once

#include <atomic>

namespace ctxbroker::detail {

// Any thread may use it. Users wait only while the gate is closed.
class UseGate {
 public:
  void enter() noexcept {
    int users = users_.load(std::memory_order_relaxed);
    for (;;) {
      if (users == closed) {
        users_.wait(closed, std::memory_order_relaxed);
        users = users_.load(std::memory_order_relaxed);
      } else if (users_.compare_exchange_weak(users, users + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
        return;
      }
    }
  }
  void leave() noexcept { users_.fetch_sub(1, std::memory_order_release); }

  // Closes the gate until `open` and returns true when nobody is inside.
  bool try_close() noexcept {
    int nobody = 0;
    return users_.compare_exchange_strong(nobody, closed, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void open() noexcept {
    users_.store(0, std::memory_order_release);
    users_.notify_all();
  }

 private:
  static constexpr int closed = -1;
  std::atomic<int> users_{0};
};

class UseScope {
 public:
  explicit UseScope(UseGate& gate) noexcept : gate_(gate) { gate_.enter(); }
  ~UseScope() { gate_.leave(); }
  UseScope(const UseScope&) = delete;
  UseScope& operator=(const UseScope&) = delete;

 private:
  UseGate& gate_;
};

}  // namespace ctxbroker::detail
