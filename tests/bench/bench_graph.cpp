// SPDX-License-Identifier: Apache-2.0
// Eight plug-ins one after the other over one frame, host memory to host memory, by lease kind,
// against eight raw launches of the same kernel on one stream with the same copies:
//   - audio: blocks of 64 and 256 stereo frames through the sample plug-in "gain", also without the
//     marks that name the guilty plug-in after a fault;
//   - image: 1920 x 1080 pixels through "exposure", also with 64 plug-ins;
//   - pinned: 1920 x 1080 and 3840 x 2160 pixels through one plug-in. The raw copies are from
//   pinned
//     memory and to there, and the graph's buffers are in HostMemory or in ordinary memory.
// Each plug-in is a library file, and so a tenant, of its own.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "ctxbroker/host_memory.hpp"
#include "raw_graph.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {
namespace {

namespace files = std::filesystem;

constexpr Frame frames[] = {
    {"audio_64", "gain", 64, 2, 1, 48000, 8, true},
    {"audio_64_without_marks", "gain", 64, 2, 1, 48000, 8, false},
    {"audio_256", "gain", 256, 2, 1, 48000, 8, true},
    {"audio_256_without_marks", "gain", 256, 2, 1, 48000, 8, false},
    {"image_1920x1080", "exposure", 1920, 1080, 4, 0, 8, true},
    {"image_1920x1080_64_plugins", "exposure", 1920, 1080, 4, 0, 64, true},
};

// Copies of one library under names of their own, for as long as they are being loaded.
class Copies {
 public:
  Copies(const std::string& plugin, unsigned count)
      : folder_(files::temp_directory_path() / ("bench_graph_" + std::to_string(getpid()))) {
    const files::path library = sample_plugin(plugin);
    files::create_directory(folder_);
    for (unsigned i = 0; i < count; ++i) {
      paths_.push_back(folder_ / (plugin + "_" + std::to_string(i) + ".so"));
      files::copy_file(library, paths_.back());
    }
  }
  ~Copies() {
    std::error_code ignored;
    files::remove_all(folder_, ignored);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  const std::vector<files::path>& paths() const noexcept { return paths_; }

 private:
  files::path folder_;
  std::vector<files::path> paths_;
};

std::vector<PluginInstance> make_instances(Session& session, const Frame& frame, LeaseKind kind,
                                           const ActivationSizes& sizes) {
  const Copies copies(frame.plugin, frame.stages);
  std::vector<PluginInstance> instances;
  for (const files::path& path : copies.paths()) {
    InstanceOptions options;
    options.lease = LeaseChoice(kind);
    instances.push_back(
        session.broker().create(session.broker().load(path), frame.plugin, options));
    instances.back().activate(sizes);
  }
  return instances;
}

double graph(Session& session, const Frame& frame, LeaseKind kind, benchmark::State& state) {
  ActivationSizes sizes;
  sizes.max_width = frame.width;
  sizes.max_height = frame.height;
  sizes.sample_rate = frame.sample_rate;
  std::vector<PluginInstance> instances = make_instances(session, frame, kind, sizes);
  std::vector<PluginInstance*> stages;
  for (PluginInstance& instance : instances) stages.push_back(&instance);
  GraphOptions options;
  options.name_faults = frame.name_faults;
  Graph plugins(session.broker(), stages, sizes, options);
  JobInfo job;
  job.width = frame.width;
  job.height = frame.height;
  job.sample_rate = frame.sample_rate;
  std::vector<float> input(floats_of(frame)), output(input.size()), expected(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 1021) / 1021;

  const unsigned batch = session.quick() || frame.sample_rate == 0 ? 1 : 50;
  std::vector<double> raw_jobs, plugin_jobs, enqueueing;
  const auto timed = [&](auto&& process, std::vector<double>& jobs) {
    const auto start = Clock::now();
    for (unsigned i = 0; i < batch; ++i) {
      const auto begin = Clock::now();
      process();
      jobs.push_back(nanoseconds_since(begin));
    }
    return nanoseconds_since(start) / batch;
  };
  RawGraph raw(session, frame);
  const JobBuffers buffers{{input.data()}, {output.data()}};
  const auto through_raw = [&] { raw.process(input.data(), expected.data()); };
  const auto through_plugins = [&] {
    const auto begin = Clock::now();
    const std::uint64_t number = plugins.submit(buffers, job);
    enqueueing.push_back(nanoseconds_since(begin));
    plugins.finish(number);
  };
  through_raw();
  through_plugins();
  if (std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)) != 0) {
    throw std::runtime_error("the plug-ins and the raw launches do not give the same bytes");
  }
  const double median =
      report(state, compare(
                        session.rounds(40), [&] { return timed(through_raw, raw_jobs); },
                        [&] { return timed(through_plugins, plugin_jobs); }));
  state.counters["raw_p99_ns"] = percentile(raw_jobs, 0.99);
  state.counters["p99_ratio"] = percentile(plugin_jobs, 0.99) / percentile(raw_jobs, 0.99);
  if (frame.sample_rate > 0) return median;
  // For an image, submit copies the samples as well; that is not a plug-in's cost.
  state.counters["submit_ns_per_plugin"] = percentile(enqueueing, 0.5) / frame.stages;
  state.counters["raw_enqueue_ns_per_plugin"] = percentile(raw.enqueueing(), 0.5) / frame.stages;
  return median;
}

constexpr Frame pictures[] = {
    {"pinned_1920x1080", "exposure", 1920, 1080, 4, 0, 1, true},
    {"pinned_3840x2160", "exposure", 3840, 2160, 4, 0, 1, true},
};

// Against copies by hand that need no copy by the processor.
double pinned(Session& session, const Frame& frame, bool in_host_memory, benchmark::State& state) {
  ActivationSizes sizes;
  sizes.max_width = frame.width;
  sizes.max_height = frame.height;
  std::vector<PluginInstance> instances = make_instances(session, frame, LeaseKind::shared, sizes);
  Graph plugins(session.broker(), {&instances.front()}, sizes);
  JobInfo job;
  job.width = frame.width;
  job.height = frame.height;
  const std::size_t samples = floats_of(frame);
  const HostMemory memory = session.broker().host_memory(2 * samples * sizeof(float));
  if (!memory.is_registered()) throw std::runtime_error("the host memory is not registered");
  std::vector<float> ordinary(in_host_memory ? 0 : 2 * samples);
  float* const input = in_host_memory ? static_cast<float*>(memory.data()) : ordinary.data();
  float* const output = input + samples;
  for (std::size_t i = 0; i < samples; ++i) input[i] = static_cast<float>(i % 1021) / 1021;
  RawGraph raw(session, frame);
  std::memcpy(raw.pinned_input(), input, samples * sizeof(float));
  const auto timed = [](auto&& process) {
    const auto begin = Clock::now();
    process();
    return nanoseconds_since(begin);
  };
  const auto through_raw = [&] { raw.process_pinned(); };
  const auto through_plugins = [&] { plugins.process(input, output, job); };
  through_raw();
  through_plugins();
  if (std::memcmp(output, raw.pinned_output(), samples * sizeof(float)) != 0) {
    throw std::runtime_error("the plug-in and the raw launch do not give the same bytes");
  }
  return report(state, compare(
                           session.rounds(40), [&] { return timed(through_raw); },
                           [&] { return timed(through_plugins); }));
}

void enrol(Session& session) {
  for (const Frame& frame : frames) {
    if (session.quick() && frame.sample_rate == 0) continue;
    for (const LeaseKind kind : lease_kinds) {
      measure_once(std::string(frame.name) + "/" + to_string(kind), benchmark::kMicrosecond,
                   [&session, &frame, kind](benchmark::State& state) {
                     return graph(session, frame, kind, state);
                   });
    }
  }
  for (const Frame& frame : pictures) {
    if (session.quick()) continue;
    for (const bool in_host_memory : {true, false}) {
      const char* const where = in_host_memory ? "/host_memory" : "/ordinary_memory";
      measure_once(std::string(frame.name) + where, benchmark::kMicrosecond,
                   [&session, &frame, in_host_memory](benchmark::State& state) {
                     return pinned(session, frame, in_host_memory, state);
                   });
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_graph", ctxbroker::bench::enrol);
}
