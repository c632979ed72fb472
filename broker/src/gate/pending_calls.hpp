// SPDX-License-Identifier: Apache-2.0
// Functions of a tenant's code that the driver has still to call. A library must not be unloaded
// before that.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace ctxbroker::detail {

// Any thread.
class PendingCalls {
 public:
  enum class What : std::uint8_t { host_function, user_object };

  // The driver is about to take a function of the code. False: the code is being unloaded, so the
  // driver must not have the function.
  bool begin(What what) noexcept;
  // The function has returned, or the driver has not taken it.
  void end(What what) noexcept;
  // The driver is about to take a function of the code for a graph. Nobody sees how often, and
  // when, graphs call it.
  void mark_graph() noexcept;
  // The driver has not taken it.
  void unmark_graph() noexcept;

  // Returns whether anything is pending, or a graph has a function.
  bool any() noexcept;
  // Waits until nothing is pending, no longer than the limit; zero: as long as host functions take.
  // Empty: nothing is, and `begin` says false from now on. Else what still points into the code, in
  // words. Throws std::bad_alloc.
  std::string wait(std::chrono::milliseconds limit);
  // The code stays, or other code has come.
  void admit() noexcept;

 private:
  std::uint64_t& count_of(What what) noexcept { return counts_[static_cast<std::size_t>(what)]; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::uint64_t, 2> counts_{};  // by What
  std::uint64_t in_graphs_ = 0;
  bool refusing_ = false;
};

}  // namespace ctxbroker::detail
