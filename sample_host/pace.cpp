// SPDX-License-Identifier: Apache-2.0
#include "pace.hpp"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "stopwatch.hpp"

namespace ctxbroker::sample_host {

namespace {

using std::chrono::nanoseconds;

double microseconds(nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// The nearest rank. `sorted` is not empty.
double percentile_of(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[std::max<std::size_t>(rank, 1) - 1]);
}

}  // namespace

// Whole seconds apart, so that no product overflows and no rounding adds up.
nanoseconds due_time(std::int64_t frame, int sample_rate) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  return nanoseconds(frame / sample_rate * second + frame % sample_rate * second / sample_rate);
}

void Deadlines::add(nanoseconds begun, nanoseconds ended, nanoseconds next_due) {
  times_.push_back(static_cast<float>(microseconds(ended - begun)));
  if (ended <= next_due) return;
  ++missed_;
  latest_ = std::max(latest_, ended - next_due);
}

PaceFacts Deadlines::facts() const {
  PaceFacts facts;
  facts.blocks = times_.size();
  facts.missed_deadlines = missed_;
  facts.latest = microseconds(latest_);
  if (times_.empty()) return facts;
  std::vector<float> sorted(times_.begin(), times_.end());
  std::sort(sorted.begin(), sorted.end());
  facts.p50 = percentile_of(sorted, 0.5);
  facts.p99 = percentile_of(sorted, 0.99);
  facts.p999 = percentile_of(sorted, 0.999);
  facts.worst = percentile_of(sorted, 1);
  return facts;
}

void Pace::begin(std::int64_t frame) {
  const nanoseconds due = due_time(frame, sample_rate_);
  if (!start_) start_ = Clock::now() - due;
  const Stopwatch stopwatch;
  std::this_thread::sleep_until(*start_ + due);
  seconds_slept_ += stopwatch.seconds();
  begun_ = Clock::now() - *start_;
}

void Pace::end(std::int64_t next) {
  deadlines_.add(begun_, Clock::now() - *start_, due_time(next, sample_rate_));
}

}  // namespace ctxbroker::sample_host
