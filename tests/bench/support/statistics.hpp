// SPDX-License-Identifier: Apache-2.0
// Percentiles, and measuring two things in turn.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace ctxbroker::bench {

using Clock = std::chrono::steady_clock;

inline double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// The nearest-rank percentile; `share` in 0..1. 0 of nothing. Sorts partly.
double percentile(std::vector<double>& values, double share);

struct Summary {
  std::size_t count = 0;
  double p50 = 0, p99 = 0, p999 = 0, worst = 0;
};
Summary summarise(std::vector<double> values);

struct Comparison {
  std::vector<double> raw, broker;  // one value per round, in what the functions return
};

// Calls both functions once per round, in turn, and changes who begins: what disturbs the machine
// disturbs both.
Comparison compare(unsigned rounds, const std::function<double()>& raw,
                   const std::function<double()>& broker);

}  // namespace ctxbroker::bench
