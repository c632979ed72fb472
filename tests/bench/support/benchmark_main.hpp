// SPDX-License-Identifier: Apache-2.0
// The main of the programs that use Google Benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "support/session.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {

// Google Benchmark's options; --quick: tiny work, for a smoke test; --without-gate: the broker does
// without, but for those that a benchmark opens itself. `enrol` registers the benchmarks. Returns
// the program's exit status: 0, 1 (no driver, or a benchmark failed; it was said which), 2 (unknown
// option).
int benchmark_main(int argc, char** argv, const std::string& program,
                   void (*enrol)(Session& session));

// Registers a benchmark that measures in its own rounds: `body` runs once, sets counters, and
// returns nanoseconds, shown as the time.
void measure_once(const std::string& name, benchmark::TimeUnit unit,
                  std::function<double(benchmark::State&)> body);

// Medians, in nanoseconds, and what the broker takes more, as a difference and as broker / raw:
// medians over the rounds, for the machine may change its speed between two of them. Returns the
// broker's median.
double report(benchmark::State& state, Comparison comparison);

}  // namespace ctxbroker::bench
