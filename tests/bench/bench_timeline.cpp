// SPDX-License-Identifier: Apache-2.0
// What the timeline costs, off and on: a span alone, against the empty loop and against one look at
// the clock; and a whole job of one small plug-in. All within one run, so that the ratios hold
// whatever the machine does.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "observe/timeline.hpp"

namespace {

using namespace ctxbroker;

constexpr std::size_t memory = std::size_t{64} << 20;
constexpr std::size_t spans_that_fit = (memory >> 16) * 511;

void loop_without_span(benchmark::State& state) {
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(++number);
}
BENCHMARK(loop_without_span);

void mark(std::uint64_t number) {
  const detail::ScopedSpan span(detail::SpanCategory::launch, "launch", "gaussian_rows",
                                TenantId{1}, number, 256);
  benchmark::DoNotOptimize(number);
}

void span_off(benchmark::State& state) {
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) mark(++number);
}
BENCHMARK(span_off);

void clock_once(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(detail::timeline_now());
}
BENCHMARK(clock_once);

// As many as fit, so that each is really kept.
void span_on(benchmark::State& state) {
  if (state.thread_index() == 0) detail::start_recording(memory);
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) mark(++number);
  if (state.thread_index() != 0) return;
  detail::stop_recording();
  state.counters["dropped"] = static_cast<double>(detail::recorded().dropped);
}
BENCHMARK(span_on)->Iterations(spans_that_fit)->Threads(1);
BENCHMARK(span_on)->Iterations(spans_that_fit / 8)->Threads(4)->UseRealTime();

void span_on_and_full(benchmark::State& state) {
  detail::start_recording(std::size_t{1} << 16);
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) mark(++number);
  detail::stop_recording();
}
BENCHMARK(span_on_and_full);

// One block of 64 frames through the gain, host memory to host memory.
void job(benchmark::State& state, bool recorded) {
  const std::filesystem::path program = std::filesystem::canonical("/proc/self/exe");
  Broker broker = Broker::open();
  PluginInstance gain = broker.create(
      broker.load(program.parent_path().parent_path() / "plugins" / "gain.so"), "gain");
  ActivationSizes sizes;
  sizes.max_width = 64;
  sizes.max_height = 2;
  sizes.sample_rate = 48000;
  gain.activate(sizes);
  Graph graph(broker, {&gain}, sizes);
  std::vector<float> samples(64 * 2, 0.5F);
  JobInfo info;
  info.width = 64;
  info.height = 2;
  info.sample_rate = 48000;
  if (recorded) broker.start_timeline({memory});
  for ([[maybe_unused]] auto _ : state) graph.process(samples.data(), samples.data(), info);
  broker.stop_timeline();
}
BENCHMARK_CAPTURE(job, timeline_off, false)->UseRealTime();
BENCHMARK_CAPTURE(job, timeline_on, true)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
