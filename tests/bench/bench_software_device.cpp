// SPDX-License-Identifier: Apache-2.0
// How fast the software device runs the sample plug-ins, host memory to host memory:
//   - one minute of 48 kHz stereo through gain, equaliser and a FIR filter of 128 taps, in blocks
//     of 256 frames, and through each of them alone; "x_real_time" is how many times faster than
//     it plays;
//   - one 1920x1080 image through the blur with a radius of 6 pixels.
// CTXBROKER_DRIVER=nvidia measures a GPU instead.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"

namespace {

using namespace ctxbroker;

Broker open_broker() {
  BrokerOptions options;
  options.host_name = "bench_software_device";
  if (std::getenv("CTXBROKER_DRIVER") == nullptr) {
    options.driver = DriverChoice::software;
  }
  return Broker::open(options);
}

PluginInstance create(Broker& broker, const std::string& name) {
  const std::filesystem::path program = std::filesystem::canonical("/proc/self/exe");
  return broker.create(
      broker.load(program.parent_path().parent_path() / "plugins" / (name + ".so")), name);
}

struct Stage {
  const char* plugin;
  std::vector<std::pair<const char*, double>> parameters;
};
const std::vector<Stage> stages{
    {"gain", {{"gain_db", -3}}},
    {"equaliser", {{"low_gain", 4}, {"mid_gain", -6}, {"high_gain", 2}}},
    {"fir", {{"taps", 128}}},
};

void audio_minute(benchmark::State& state, const std::string& only) {
  constexpr std::uint32_t block = 256;
  constexpr std::uint32_t channels = 2;
  constexpr double rate = 48000;
  constexpr std::size_t blocks = static_cast<std::size_t>(60 * rate) / block;
  Broker broker = open_broker();
  ActivationSizes sizes;
  sizes.max_width = block;
  sizes.max_height = channels;
  sizes.sample_rate = rate;
  std::vector<PluginInstance> instances;
  instances.reserve(stages.size());
  std::vector<PluginInstance*> order;
  for (const Stage& stage : stages) {
    if (!only.empty() && only != stage.plugin) continue;
    PluginInstance& instance = instances.emplace_back(create(broker, stage.plugin));
    for (const auto& [name, value] : stage.parameters) instance.set_parameter(name, value);
    instance.activate(sizes);
    order.push_back(&instance);
  }
  Graph graph(broker, order, sizes);
  std::vector<float> samples(std::size_t{channels} * block);
  std::vector<float> result(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = std::sin(0.1F * static_cast<float>(i));
  }
  JobInfo job;
  job.width = block;
  job.height = channels;
  job.sample_rate = rate;
  graph.process(samples.data(), result.data(), job);  // the first one also readies the device

  double seconds = 0;
  while (state.KeepRunning()) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < blocks; ++i) {
      job.position += block;
      graph.process(samples.data(), result.data(), job);
    }
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    benchmark::DoNotOptimize(result.data());
  }
  const double played = static_cast<double>(blocks) * block / rate;
  state.counters["x_real_time"] = played * static_cast<double>(state.iterations()) / seconds;
}
#define CTXB_AUDIO_MINUTE(name, only)                      \
  BENCHMARK_CAPTURE(audio_minute, name, std::string(only)) \
      ->Unit(benchmark::kSecond)                           \
      ->UseRealTime()                                      \
      ->MeasureProcessCPUTime()
CTXB_AUDIO_MINUTE(all, "");
CTXB_AUDIO_MINUTE(gain, "gain");
CTXB_AUDIO_MINUTE(equaliser, "equaliser");
CTXB_AUDIO_MINUTE(fir, "fir");

void blur_full_hd(benchmark::State& state) {
  constexpr std::uint32_t width = 1920;
  constexpr std::uint32_t height = 1080;
  Broker broker = open_broker();
  PluginInstance blur = create(broker, "blur");
  blur.set_parameter("radius", 6);
  ActivationSizes sizes;
  sizes.max_width = width;
  sizes.max_height = height;
  blur.activate(sizes);
  Graph graph(broker, {&blur}, sizes);
  std::vector<float> pixels(std::size_t{4} * width * height);
  std::vector<float> result(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<float>(i % 1021) / 1021;
  }
  JobInfo job;
  job.width = width;
  job.height = height;
  graph.process(pixels.data(), result.data(), job);
  while (state.KeepRunning()) {
    graph.process(pixels.data(), result.data(), job);
    benchmark::DoNotOptimize(result.data());
  }
}
BENCHMARK(blur_full_hd)->Unit(benchmark::kSecond)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace

BENCHMARK_MAIN();
