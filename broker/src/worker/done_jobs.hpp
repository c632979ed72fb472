// SPDX-License-Identifier: Apache-2.0
// Tells a host which jobs of its graph in a worker are done (GraphOptions::on_done).
//
// Jobs become done in their order. The worker writes the number of the last one on a board, which
// is a lent block. Then it rings: it sends a notification without content. The host looks at the
// board after each notification. If the socket is full, the worker cannot ring, but the host still
// has notifications to read, and looks at the board after those. So no job is missed.
//
// The worker can write anything there. So a job is told only if the host has submitted it, and only
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ctxbroker::detail {

struct LentBlock;

using DoneBoard = std::uint64_t;  // the number of the last job that is done

// Thread-safe. Its lock is held while the host is told.
class DoneJobs {
 public:
  explicit DoneJobs(std::function<void(std::uint64_t)> tell)
      : is_wanted_(tell != nullptr), tell_(std::move(tell)) {
    if (is_wanted_) jobs_.reserve(most_jobs);
  }

  // If not, the functions below do nothing.
  bool is_wanted() const noexcept { return is_wanted_; }
  // A process begins to number its jobs, from 1 on. `lost_are_done`: the host does not wait for
  // those that its end loses.
  void listen(std::shared_ptr<LentBlock> board, bool lost_are_done) noexcept;
  // The process has this job under a number of its own. If that is 0, the job is done.
  void add(std::uint64_t in_worker, std::uint64_t job) noexcept;
  // The job is done, even if the process has not said so.
  void tell(std::uint64_t job) noexcept;
  void look() noexcept;
  // The process has ended.
  void end() noexcept;
  // The process does not do its jobs any more.
  void forget() noexcept;
  // The host is told nothing from now on.
  void stop() noexcept;

 private:
  static constexpr std::size_t most_jobs = 128;  // twice as many as can be in flight
  struct Job {
    std::uint64_t in_worker = 0, job = 0;
  };
  template <typename IsDone>
  void tell_those(const IsDone& is_done) noexcept;
  void tell_until_last() noexcept;

  const bool is_wanted_;
  std::mutex mutex_;
  std::function<void(std::uint64_t)> tell_;
  std::shared_ptr<LentBlock> board_;
  bool lost_are_done_ = false;
  std::uint64_t last_ = 0;  // that is done, if there is no board
  std::vector<Job> jobs_;
};

}  // namespace ctxbroker::detail
