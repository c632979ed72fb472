// SPDX-License-Identifier: Apache-2.0
// Tells a host which jobs of its graph in a worker are done (GraphOptions::on_done).
//
// The worker writes the number of each job that is done on a board, which is a lent block. Then it
// rings: it sends a notification without content. The host looks at the board after each
// notification. If the socket is full, the worker cannot ring, but the host still has notifications
// to read, and looks at the board after those. So no job is missed.
//
// The worker can write anything there. So a job is told only if the host has submitted it, and only
// once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "worker/graph_wire.hpp"

namespace ctxbroker::detail {

struct LentBlock;

// Thread-safe. Its lock is held while the host is told.
class DoneJobs {
 public:
  explicit DoneJobs(std::function<void(std::uint64_t)> tell)
      : is_wanted_(tell != nullptr), tell_(std::move(tell)) {}

  // If not, the functions below do nothing.
  bool is_wanted() const noexcept { return is_wanted_; }
  // A process begins to number its jobs. `lost_are_done`: the host does not wait for those that its
  // end loses.
  void listen(std::shared_ptr<LentBlock> board, bool lost_are_done) noexcept;
  // The process has this job under a number of its own. It may be done already.
  void add(std::uint64_t in_worker, std::uint64_t job) noexcept;
  // This job is done, and the process does not have it.
  void tell(std::uint64_t job) noexcept;
  // The process has answered that its job is done.
  void tell_answered(std::uint64_t in_worker) noexcept;
  void look() noexcept;
  // The process has no jobs any more.
  void lose() noexcept;
  // The host is told nothing from now on.
  void stop() noexcept;

 private:
  struct Job {
    std::uint64_t in_worker = 0, job = 0;  // 0: none
  };
  void look_with_lock() noexcept;
  template <typename IsDone>
  void tell_those(const IsDone& is_done) noexcept;

  const bool is_wanted_;
  std::mutex mutex_;
  std::function<void(std::uint64_t)> tell_;
  std::shared_ptr<LentBlock> board_;
  bool lost_are_done_ = false;
  std::array<Job, done_board_places> jobs_{};  // by their numbers in the worker
  std::uint64_t last_ = 0;                     // of these numbers
};

}  // namespace ctxbroker::detail
