// SPDX-License-Identifier: Apache-2.0
// The way to a worker process and back, for an empty message and for one of 2 KiB, by how long the
// two sides look before they sleep, against the same bytes through two pipes and a process that
// sends them back. The module answers with the message and uses no GPU.
//
// Then a block of audio through the sample plug-in gain, which is an almost empty job if it has one
// frame, and a picture through exposure, in host memory or in device memory: a graph in this
// process, or raw launches, and the same graph in a worker; eight plug-ins in this process, and in
// one worker or in eight; eight of three kinds, by their grouping; a picture through three, whose
// processes hand it over on the device or in host memory; a block in a worker alone, and beside
// another worker that keeps the device busy. Last, the time from the end of a worker to the next
// block that is done and right, with a stand-by against without, how long the end of a worker holds
// up the blocks, the time after a kernel's fault, and how long the fault holds up another worker.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bystander_worker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/stream.hpp"
#include "ctxbroker/tenant.hpp"
#include "ctxbroker/worker.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "dying_worker.hpp"
#include "faulting_worker.hpp"
#include "hog_worker.hpp"
#include "raw_graph.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {
namespace {

void whole(ssize_t (*step)(int, char*, std::size_t), int file, char* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now = step(file, data + done, bytes - done);
    if (now <= 0) throw std::runtime_error("the pipe is closed");
    done += static_cast<std::size_t>(now);
  }
}
ssize_t read_some(int file, char* data, std::size_t bytes) {
  return read(file, data, bytes);
}
ssize_t write_some(int file, char* data, std::size_t bytes) {
  return write(file, data, bytes);
}

// A child that sends back what it gets, in pieces of this size.
class PipeEcho {
 public:
  explicit PipeEcho(std::size_t bytes) : data_(bytes) {
    if (pipe(to_.data()) != 0 || pipe(from_.data()) != 0) throw std::runtime_error("no pipe");
    child_ = fork();
    if (child_ != 0) return;
    close(to_[1]);
    while (read_all(to_[0])) whole(write_some, from_[1], data_.data(), data_.size());
    _exit(0);
  }
  ~PipeEcho() {
    for (const int file : {to_[0], to_[1], from_[0], from_[1]}) close(file);
    waitpid(child_, nullptr, 0);
  }
  PipeEcho(const PipeEcho&) = delete;
  PipeEcho& operator=(const PipeEcho&) = delete;

  void round_trip() {
    whole(write_some, to_[1], data_.data(), data_.size());
    whole(read_some, from_[0], data_.data(), data_.size());
  }

 private:
  bool read_all(int file) noexcept {
    try {
      whole(read_some, file, data_.data(), data_.size());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  std::vector<char> data_;
  std::array<int, 2> to_{}, from_{};
  pid_t child_ = 0;
};

std::filesystem::path built(const char* file) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / file;
}

// The median of some trips, all of which go to `keep`, if it is there.
template <typename Trip>
double median_of(int count, const Trip& trip, std::vector<double>* keep = nullptr) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    trip();
    times.push_back(nanoseconds_since(start));
  }
  if (keep != nullptr) keep->insert(keep->end(), times.begin(), times.end());
  return percentile(times, 0.5);
}

// Compares in turn; the times are medians of single round trips.
double round_trips(const Session& session, std::size_t bytes, std::chrono::microseconds spin,
                   benchmark::State& state) {
  PipeEcho echo(bytes != 0 ? bytes : 1);
  WorkerOptions options;
  options.name = "echo";
  options.module = built("test_plugins/worker/worker_module.so");
  options.spin = spin;
  Worker worker(options);
  std::vector<char> data(bytes), answer(bytes + 1);
  const auto call = [&] {
    worker.call({0, 0, data.data(), data.size()}, answer.data(), answer.size());
  };
  const int count = session.quick() ? 20 : 2000;
  std::vector<double> all;
  call();
  const Comparison comparison = compare(
      session.rounds(20), [&] { return median_of(count, [&] { echo.round_trip(); }); },
      [&] { return median_of(count, call, &all); });
  state.counters["p99_ns"] = percentile(all, 0.99);
  return report(state, comparison);
}

double restarts(const Session& session, StandBy stand_by, benchmark::State& state) {
  Dying without(StandBy::none, false), with(stand_by, false);
  return report(state, compare(
                           session.rounds(20), [&] { return without.back_at_work(); },
                           [&] { return with.back_at_work(); }));
}

// Measures how long the exit of a worker process holds up a thread that plays sound, without and
// with dry_while_away.
double held_up(const Session& session, benchmark::State& state) {
  Dying waits(StandBy::none, false), is_dry(StandBy::none, true);
  return report(state, compare(
                           session.rounds(20), [&] { return waits.longest_call(); },
                           [&] { return is_dry.longest_call(); }));
}

// Measures how long a block waits that is in a process when the process is killed, with lent memory
// and without.
double held_up_in_process(const Session& session, benchmark::State& state) {
  Dying lends(StandBy::none, true), shares_nothing(StandBy::none, true);
  lends.lend();
  return report(state, compare(
                           session.rounds(20), [&] { return lends.block_in_process(); },
                           [&] { return shares_nothing.block_in_process(); }));
}

// From the begin of a job that faults: until the driver says so in a process without a worker, and
// until a worker is back at work.
double after_a_fault(const Session& session, StandBy stand_by, benchmark::State& state) {
  Faulting there(stand_by);
  const Comparison comparison =
      compare(session.rounds(9), time_of_fault_here, [&] { return there.back_at_work(); });
  state.counters["since_known_ns"] = percentile(there.since_known(), 0.5);
  return report(state, comparison);
}

// Measures how long a kernel's fault in one worker holds up another one: the longest time between
// two blocks of the other one, without a fault and with one.
double beside_a_fault(const Session& session, benchmark::State& state) {
  Faulting guilty(StandBy::none);
  Bystander bystander;
  std::chrono::duration<double, std::nano> taken = std::chrono::milliseconds(200);
  return report(
      state, compare(
                 session.rounds(9),
                 [&] { return bystander.longest_gap([&] { std::this_thread::sleep_for(taken); }); },
                 [&] {
                   return bystander.longest_gap([&] {
                     taken =
                         std::chrono::duration<double, std::nano>(guilty.back_without_stand_by());
                   });
                 }));
}

// Compares jobs in this process with the same jobs in workers.
template <typename Here, typename There>
double compare_jobs(const Session& session, int count, const Here& here, const There& there,
                    benchmark::State& state) {
  here();
  there();
  std::vector<double> all_here, all_there;
  const Comparison comparison = compare(
      session.rounds(20), [&] { return median_of(count, here, &all_here); },
      [&] { return median_of(count, there, &all_there); });
  state.counters["in_process_p99_ns"] = percentile(all_here, 0.99);
  state.counters["p99_ns"] = percentile(all_there, 0.99);
  return report(state, comparison);
}

// A block of audio, in this process, or by the raw driver in this process, and in a worker.
double audio(Session& session, std::uint32_t frames, bool against_raw,
             std::chrono::microseconds spin, benchmark::State& state) {
  const ActivationSizes sizes{frames, channels, 48000, false};
  Broker& broker = session.broker();
  PluginInstance gain = broker.create(broker.load(sample_plugin("gain")), "gain");
  gain.activate(sizes);
  Graph here(broker, {&gain}, sizes);
  RawGraph raw(session, {"", "gain", frames, channels, 1, 48000, 1, true});
  WorkerGraphOptions options;
  options.worker.name = "audio";
  options.worker.spin = spin;
  WorkerGraph there = gain_in_worker(options, frames);
  std::vector<float> block(std::size_t{frames} * channels);
  const JobInfo job = block_of(frames);
  const auto in_process = [&] {
    if (against_raw) return raw.process(block.data(), block.data());
    here.process(block.data(), block.data(), job);
  };
  const auto in_worker = [&] { there.process(block.data(), block.data(), job); };
  return compare_jobs(session, session.quick() ? 20 : 500, in_process, in_worker, state);
}

// A row of plug-ins, whose jobs are timed in this process and in workers.
class Row {
 public:
  Row(Broker& broker, const std::vector<std::string>& plugins, const ActivationSizes& sizes)
      : sizes_(sizes) {
    std::vector<PluginInstance*> row;
    for (const std::string& plugin : plugins) {
      row.push_back(
          &instances_.emplace_back(broker.create(broker.load(sample_plugin(plugin)), plugin)));
      row.back()->activate(sizes);
      description_.nodes.push_back({"", sample_plugin(plugin)});
    }
    here_.emplace(broker, row, sizes);
  }
  double compare(Session& session, int jobs, const WorkerGraphOptions& options, const JobInfo& job,
                 benchmark::State& state) {
    WorkerGraph there(description_, options);
    there.activate(sizes_);
    std::vector<float> samples(std::size_t{job.width} * job.height * (job.sample_rate > 0 ? 1 : 4));
    state.counters["processes"] = static_cast<double>(there.processes());
    const auto in_process = [&] { here_->process(samples.data(), samples.data(), job); };
    const auto in_workers = [&] { there.process(samples.data(), samples.data(), job); };
    return compare_jobs(session, jobs, in_process, in_workers, state);
  }
  // With a device that there is not, pictures between processes go through host memory.
  void set_device(int device) { description_.device = device; }

 private:
  ActivationSizes sizes_;
  std::deque<PluginInstance> instances_;
  std::optional<Graph> here_;
  WorkerGraphDescription description_{{{"in"}}, {{"out"}}, {}};
};

const std::vector<std::string> eight_of_one_kind(8, "gain");
const std::vector<std::string> eight_of_three_kinds{"gain",      "gain",      "gain",  "equaliser",
                                                    "equaliser", "equaliser", "delay", "delay"};

// A block through eight plug-ins.
double eight(Session& session, const std::vector<std::string>& plugins, WorkerGrouping grouping,
             std::chrono::microseconds spin, benchmark::State& state) {
  constexpr std::uint32_t frames = 256;
  Row row(session.broker(), plugins, {frames, channels, 48000, false});
  WorkerGraphOptions options;
  options.grouping = grouping;
  options.broker = &session.broker();
  options.worker.spin = spin;
  return row.compare(session, session.quick() ? 2 : 200, options, block_of(frames), state);
}

// A picture of 1920 x 1080 through three plug-ins with a process each.
double three_pictures(Session& session, bool on_device, benchmark::State& state) {
  JobInfo job;
  job.width = session.quick() ? 64 : 1920;
  job.height = session.quick() ? 64 : 1080;
  Row row(session.broker(), {"exposure", "exposure", "exposure"}, {job.width, job.height});
  if (!on_device) row.set_device(99);
  WorkerGraphOptions options;
  options.grouping = WorkerGrouping::each_instance;
  return row.compare(session, session.quick() ? 2 : 20, options, job, state);
}

// A block in a worker: alone, and beside a hog in another worker.
double beside_a_hog(Session& session, std::uint32_t frames, benchmark::State& state) {
  WorkerGraph graph = gain_in_worker({}, frames);
  Hog hog(session.quick());
  std::vector<float> block(std::size_t{frames} * channels);
  const JobInfo job = block_of(frames);
  const auto one = [&] { graph.process(block.data(), block.data(), job); };
  one();
  const int times = session.quick() ? 2 : 100;
  std::vector<double> all_alone, all_beside;
  // With pauses, as in sound, so that blocks meet the hog in all that it does.
  const auto median_with_pauses = [&](std::vector<double>& all) {
    std::vector<double> taken;
    for (int i = 0; i < times; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(1333));
      const auto start = Clock::now();
      one();
      taken.push_back(nanoseconds_since(start));
    }
    all.insert(all.end(), taken.begin(), taken.end());
    return percentile(taken, 0.5);
  };
  const Comparison comparison = compare(
      session.rounds(20),
      [&] {
        hog.run(false);
        return median_with_pauses(all_alone);
      },
      [&] {
        hog.run(true);
        return median_with_pauses(all_beside);
      });
  hog.run(false);
  state.counters["hog_on_device"] = hog.device_seconds() / hog.seconds();
  state.counters["alone_p99_ns"] = percentile(all_alone, 0.99);
  state.counters["p99_ns"] = percentile(all_beside, 0.99);
  return report(state, comparison);
}

constexpr std::uint32_t width = 1920, height = 1080;
constexpr std::size_t samples = std::size_t{width} * height * 4;

JobInfo one_picture() {
  JobInfo job;
  job.width = width;
  job.height = height;
  return job;
}

// A float RGBA picture of 1920 x 1080, in this process and in a worker, whose buffers are copied or
// lent.
double picture(Session& session, bool lent, benchmark::State& state) {
  Broker& broker = session.broker();
  PluginInstance exposure = broker.create(broker.load(sample_plugin("exposure")), "exposure");
  exposure.activate({width, height});
  Graph here(broker, {&exposure}, {width, height});
  WorkerGraph there({{{"in"}}, {{"out"}}, {{"exposure", sample_plugin("exposure")}}});
  there.activate({width, height});
  const WorkerBuffer block = there.lend(2 * samples * sizeof(float));
  std::vector<float> own(2 * samples);
  float* const shared = lent ? static_cast<float*>(block.data()) : own.data();
  const JobInfo job = one_picture();
  const auto in_process = [&] { here.process(own.data(), own.data() + samples, job); };
  const auto in_worker = [&] { there.process(shared, shared + samples, job); };
  in_process();
  in_worker();
  const int count = session.quick() ? 1 : 20;
  return report(state, compare(
                           session.rounds(20), [&] { return median_of(count, in_process); },
                           [&] { return median_of(count, in_worker); }));
}

// The same picture in this process's device memory, on which both graphs work.
double picture_on_device(Session& session, benchmark::State& state) {
  const GraphPort in{"in", 4, SampleType::float32, true}, out{"out", 4, SampleType::float32, true};
  Broker& broker = session.broker();
  Tenant frames = broker.open_tenant("frames");
  const Stream stream(frames);
  const DeviceMemory memory = DeviceMemory::shareable(frames, 2 * samples * sizeof(float));
  float* const from = reinterpret_cast<float*>(memory.address());
  PluginInstance exposure = broker.create(broker.load(sample_plugin("exposure")), "exposure");
  exposure.activate({width, height});
  const GraphDescription description{
      {in}, {out}, {{"exposure", &exposure}}, {{"in", "exposure"}, {"exposure", "out"}}, &frames};
  Graph here(broker, description, {width, height});
  WorkerGraph there({{in}, {out}, {{"exposure", sample_plugin("exposure")}}});
  there.activate({width, height});
  const WorkerDeviceBuffer lent = there.lend(memory);
  const JobInfo job = one_picture();
  const auto in_process = [&] { here.process({{from}, {from + samples}, stream.get()}, job); };
  const auto in_worker = [&] { there.process({{from}, {from + samples}}, job); };
  return compare_jobs(session, session.quick() ? 1 : 20, in_process, in_worker, state);
}

void enrol(Session& session) {
  for (const std::uint32_t frames : {1U, 256U}) {
    for (const bool against_raw : {false, true}) {
      for (const int spin : {0, 50, 1000}) {
        measure_once(std::string(against_raw ? "audio_against_raw/" : "audio/") +
                         std::to_string(frames) + "_frames/spin_" + std::to_string(spin) + "_us",
                     benchmark::kMicrosecond,
                     [&session, frames, against_raw, spin](benchmark::State& state) {
                       return audio(session, frames, against_raw, std::chrono::microseconds(spin),
                                    state);
                     });
      }
    }
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{2048}}) {
    for (const int spin : {0, 50, 1000}) {
      measure_once(
          "round_trip/" + std::to_string(bytes) + "_bytes/spin_" + std::to_string(spin) + "_us",
          benchmark::kMicrosecond, [&session, bytes, spin](benchmark::State& state) {
            return round_trips(session, bytes, std::chrono::microseconds(spin), state);
          });
    }
  }
  for (const bool lent : {false, true}) {
    measure_once(
        std::string("picture/1080p/") + (lent ? "lent" : "copied"), benchmark::kMillisecond,
        [&session, lent](benchmark::State& state) { return picture(session, lent, state); });
  }
  measure_once("picture/1080p/on_device", benchmark::kMillisecond,
               [&session](benchmark::State& state) { return picture_on_device(session, state); });
  for (const auto grouping : {WorkerGrouping::together, WorkerGrouping::each_instance}) {
    for (const int spin : {50, 1000}) {
      measure_once(
          std::string("eight/") + to_string(grouping) + "/spin_" + std::to_string(spin) + "_us",
          benchmark::kMicrosecond, [&session, grouping, spin](benchmark::State& state) {
            return eight(session, eight_of_one_kind, grouping, std::chrono::microseconds(spin),
                         state);
          });
    }
  }
  for (const auto grouping : {WorkerGrouping::in_host, WorkerGrouping::together,
                              WorkerGrouping::by_plugin, WorkerGrouping::each_instance}) {
    measure_once(std::string("eight_of_three_kinds/") + to_string(grouping) + "/spin_50_us",
                 benchmark::kMicrosecond, [&session, grouping](benchmark::State& state) {
                   return eight(session, eight_of_three_kinds, grouping,
                                std::chrono::microseconds(50), state);
                 });
  }
  for (const bool on_device : {false, true}) {
    measure_once(
        std::string("three_pictures/each-instance/") + (on_device ? "on_device" : "in_host_memory"),
        benchmark::kMillisecond, [&session, on_device](benchmark::State& state) {
          return three_pictures(session, on_device, state);
        });
  }
  for (const std::uint32_t frames : {64U, 256U}) {
    measure_once("beside_a_hog/" + std::to_string(frames) + "_frames", benchmark::kMicrosecond,
                 [&session, frames](benchmark::State& state) {
                   return beside_a_hog(session, frames, state);
                 });
  }
  for (const StandBy stand_by : {StandBy::loaded, StandBy::activated}) {
    measure_once(std::string("restart/") + name_of(stand_by), benchmark::kMillisecond,
                 [&session, stand_by](benchmark::State& state) {
                   return restarts(session, stand_by, state);
                 });
  }
  measure_once("restart/dry_while_away", benchmark::kMillisecond,
               [&session](benchmark::State& state) { return held_up(session, state); });
  measure_once("restart/block_in_process", benchmark::kMillisecond,
               [&session](benchmark::State& state) { return held_up_in_process(session, state); });
  for (const StandBy stand_by : {StandBy::none, StandBy::loaded, StandBy::activated}) {
    measure_once(std::string("after_a_fault/") + name_of(stand_by), benchmark::kMillisecond,
                 [&session, stand_by](benchmark::State& state) {
                   return after_a_fault(session, stand_by, state);
                 });
  }
  measure_once("after_a_fault/bystander", benchmark::kMillisecond,
               [&session](benchmark::State& state) { return beside_a_fault(session, state); });
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) try {
  using namespace ctxbroker::bench;
  if (argc == 2 && std::string_view(argv[1]) == "--fault-here") return fault_here();
  return benchmark_main(argc, argv, "bench_worker", enrol);
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_worker: %s\n", error.what());
  return 1;
}
