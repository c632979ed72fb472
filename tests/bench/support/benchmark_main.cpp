// SPDX-License-Identifier: Apache-2.0
#include "support/benchmark_main.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

namespace ctxbroker::bench {
namespace {

// Google Benchmark forgets which benchmarks failed.
std::atomic<int> failures{0};

// Removes an option from the arguments; true when it was there.
bool take(std::string_view option, int& argc, char** argv) {
  char** end =
      std::remove_if(argv + 1, argv + argc, [=](const char* text) { return option == text; });
  const int left = static_cast<int>(end - argv);
  const bool found = left != argc;
  argc = left;
  return found;
}

using Measurement = std::function<void(benchmark::State&)>;
// Volatile, so that clang's analyser does not look behind it: what Google Benchmark makes and keeps
// it would take for a leak, and say so in Google Benchmark's header.
benchmark::internal::Benchmark* (*volatile enrol_measurement)(const std::string&, Measurement&&) =
    [](const std::string& name, Measurement&& measurement) {
      return benchmark::RegisterBenchmark(name.c_str(), std::move(measurement));
    };

}  // namespace

int benchmark_main(int argc, char** argv, const std::string& program, void (*enrol)(Session&)) {
  const bool quick = take("--quick", argc, argv);
  BrokerOptions options;
  options.use_gate = !take("--without-gate", argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    Session session(program, quick, options);
    benchmark::AddCustomContext("device", session.device().name);
    benchmark::AddCustomContext(
        "gate", session.broker().gate().mode == GateMode::none ? "not in force" : "in force");
    benchmark::AddCustomContext("driver", session.broker().driver().path);
    enrol(session);
    if (benchmark::RunSpecifiedBenchmarks() == 0) {
      std::fprintf(stderr, "%s: no benchmark has such a name\n", program.c_str());
      return 1;
    }
    benchmark::Shutdown();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: error: %s\n", program.c_str(), error.what());
    return 1;
  }
  return failures.load() == 0 ? 0 : 1;
}

void measure_once(const std::string& name, benchmark::TimeUnit unit,
                  std::function<double(benchmark::State&)> body) {
  Measurement measurement = [body = std::move(body)](benchmark::State& state) {
    while (state.KeepRunning()) {
      try {
        state.SetIterationTime(body(state) / 1e9);
      } catch (const std::exception& error) {
        failures.fetch_add(1);
        state.SkipWithError(error.what());
      }
    }
  };
  enrol_measurement(name, std::move(measurement))->Iterations(1)->UseManualTime()->Unit(unit);
}

double report(benchmark::State& state, Comparison comparison) {
  std::vector<double> added, ratios;
  for (std::size_t round = 0; round < comparison.raw.size(); ++round) {
    const double raw = comparison.raw[round], broker = comparison.broker[round];
    added.push_back(broker - raw);
    if (raw > 0) ratios.push_back(broker / raw);
  }
  const double raw = percentile(comparison.raw, 0.5);
  const double broker = percentile(comparison.broker, 0.5);
  state.counters["raw_ns"] = raw;
  state.counters["broker_ns"] = broker;
  state.counters["added_ns"] = percentile(added, 0.5);
  if (!ratios.empty()) state.counters["ratio"] = percentile(ratios, 0.5);
  return broker;
}

}  // namespace ctxbroker::bench
