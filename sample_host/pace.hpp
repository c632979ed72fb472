// SPDX-License-Identifier: Apache-2.0
// Blocks of sound that begin by the clock, as those of a sound card do (--pace).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace ctxbroker::sample_host {

// Counts of blocks, and times in microseconds.
struct PaceFacts {
  std::uint64_t blocks = 0;
  std::uint64_t missed_deadlines = 0;  // results that came after the next block was due
  double latest = 0;                   // how long after it, at most
  // How long blocks took, from their beginning to their result.
  double p50 = 0, p99 = 0, p999 = 0, worst = 0;
};

// Returns when a frame is due, if frame 0 is due at 0.
std::chrono::nanoseconds due_time(std::int64_t frame, int sample_rate) noexcept;

// Collects the times of blocks.
class Deadlines {
 public:
  // A block's beginning and its result, and when the next block is due.
  void add(std::chrono::nanoseconds begun, std::chrono::nanoseconds ended,
           std::chrono::nanoseconds next_due);
  PaceFacts facts() const;

 private:
  std::uint64_t missed_ = 0;
  std::chrono::nanoseconds latest_{0};
  std::deque<float> times_;  // microseconds; grows without moving what is there
};

// The clock of one recording, and the times of its blocks. For one thread.
class Pace {
 public:
  explicit Pace(int sample_rate) : sample_rate_(sample_rate) {}

  // Sleeps until the block that begins at this frame is due. The clock starts with the first block.
  // A late block moves no other block's time.
  void begin(std::int64_t frame);
  // The block's result is there. `next` is the frame at which the next block begins.
  void end(std::int64_t next);

  double seconds_slept() const noexcept { return seconds_slept_; }
  PaceFacts facts() const { return deadlines_.facts(); }

 private:
  using Clock = std::chrono::steady_clock;

  int sample_rate_;
  std::optional<Clock::time_point> start_;  // when frame 0 was due
  std::chrono::nanoseconds begun_{0};
  double seconds_slept_ = 0;
  Deadlines deadlines_;
};

}  // namespace ctxbroker::sample_host
