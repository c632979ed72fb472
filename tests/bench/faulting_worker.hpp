// SPDX-License-Identifier: Apache-2.0
// A kernel that faults: how long until the driver says so, and until a worker is back at work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "dying_worker.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {

inline std::filesystem::path this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

inline std::filesystem::path faulting_plugin() {
  return this_program().parent_path().parent_path() / "test_plugins" / "hostile_sound.so";
}

// Runs the job, which has to fail.
template <typename Job>
void fail(const Job& job) {
  try {
    job();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::context_lost) return;
    throw;
  }
  throw std::runtime_error("the kernel did not fault");
}

inline constexpr std::uint32_t fault_frames = 256;

// What `bench_worker --fault-here` does: it prints how long a job takes that faults in its process,
// in ns. CUDA ends in this process.
inline int fault_here() {
  Broker broker = Broker::open();
  PluginInstance plugin = broker.create(broker.load(faulting_plugin()), "hostile_sound");
  plugin.activate({fault_frames, channels, 48000, false});
  Graph graph(broker, {&plugin}, {fault_frames, channels, 48000, false});
  std::vector<float> block(std::size_t{fault_frames} * channels);
  const auto job = [&] { graph.process(block.data(), block.data(), block_of(fault_frames)); };
  job();
  plugin.set_parameter("faults", true);
  const auto start = Clock::now();
  fail(job);
  std::printf("%.0f\n", nanoseconds_since(start));
  std::fflush(stdout);
  std::_Exit(0);
}

inline double time_of_fault_here() {
  FILE* const output = ::popen(("'" + this_program().string() + "' --fault-here").c_str(), "r");
  double time = 0;
  const bool is_read = output != nullptr && std::fscanf(output, "%lf", &time) == 1;
  if (output != nullptr) ::pclose(output);
  if (!is_read) throw std::runtime_error("bench_worker --fault-here has failed");
  return time;
}

// A worker whose kernel faults again and again.
class Faulting {
 public:
  explicit Faulting(StandBy stand_by) {
    WorkerGraphOptions options;
    set(options, stand_by);
    options.worker.crash_limit = 0;
    graph_.emplace(WorkerGraphDescription{{{"in"}}, {{"out"}}, {{"sound", faulting_plugin()}}},
                   options);
    graph_->activate({fault_frames, channels, 48000, false});
    process();
  }

  // From the begin of the job that faults until the next job is done and right, in ns.
  double back_at_work() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the stand-by starts
    return back_without_stand_by();
  }
  double back_without_stand_by() {
    graph_->set_parameter(0, "faults", true);
    const auto start = Clock::now();
    fail([&] { process(); });
    const auto known = Clock::now();
    graph_->set_parameter(0, "faults", false);
    process();
    since_known_.push_back(nanoseconds_since(known));
    return nanoseconds_since(start);
  }
  // The part of each of these times in which the host knew of the fault.
  std::vector<double>& since_known() noexcept { return since_known_; }

 private:
  void process() {
    std::fill(output_.begin(), output_.end(), 0.0F);
    graph_->process(input_.data(), output_.data(), block_of(fault_frames));
    if (output_ != input_) throw std::runtime_error("a block is wrong");
  }

  std::optional<WorkerGraph> graph_;
  std::vector<double> since_known_;
  const std::vector<float> input_ = counted(fault_frames);
  std::vector<float> output_ = std::vector<float>(input_.size());
};

}  // namespace ctxbroker::bench
