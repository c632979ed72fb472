// SPDX-License-Identifier: Apache-2.0
// A block of sound through a plug-in in a worker, and what becomes of it when the worker is killed.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {

inline constexpr std::uint32_t channels = 2;

inline JobInfo block_of(std::uint32_t frames) {
  JobInfo job;
  job.width = frames;
  job.height = channels;
  job.sample_rate = 48000;
  return job;
}

// A block of samples that are small whole numbers, and none of them 0.
inline std::vector<float> counted(std::uint32_t frames) {
  std::vector<float> samples(std::size_t{frames} * channels);
  std::iota(samples.begin(), samples.end(), 1.0F);
  return samples;
}

inline WorkerGraph gain_in_worker(const WorkerGraphOptions& options, std::uint32_t frames) {
  WorkerGraph graph({{{"in"}}, {{"out"}}, {{"gain", sample_plugin("gain")}}}, options);
  graph.activate({frames, channels, 48000, false});
  return graph;
}

enum class StandBy : std::uint8_t { none, loaded, activated };

inline const char* name_of(StandBy stand_by) {
  return stand_by == StandBy::none     ? "new_process"
         : stand_by == StandBy::loaded ? "stand_by"
                                       : "activated_stand_by";
}

inline void set(WorkerGraphOptions& options, StandBy stand_by) {
  options.stand_by = stand_by != StandBy::none;
  options.stand_by_memory = stand_by == StandBy::activated ? std::uint64_t{1} << 30 : 0;
}

// A worker that is killed again and again.
class Dying {
 public:
  // Either option, or none.
  Dying(StandBy stand_by, bool dry_while_away)
      : graph_(gain_in_worker(options(stand_by, dry_while_away), frames)) {
    graph_.set_parameter(0, "gain_db", 20);
  }

  // From the kill to the next block that is done and right, in ns.
  double back_at_work() {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the stand-by starts
    const std::uint64_t ends = graph_.exits();
    const auto start = Clock::now();
    kill(graph_.process_id(), SIGKILL);
    while (!is_back(ends)) continue;
    return nanoseconds_since(start);
  }

  // The longest call from the kill until blocks are done again, in ns.
  double longest_call() {
    end_process();
    for (double longest = 0;;) {
      const auto start = Clock::now();
      const JobOutcome outcome = process();
      longest = std::max(longest, nanoseconds_since(start));
      if (outcome == JobOutcome::done) return longest;
      std::this_thread::sleep_for(std::chrono::microseconds(5333));  // until the next block
    }
  }

  // From the kill until the block that is in the process is dry, in ns.
  double block_in_process() {
    while (process() != JobOutcome::done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(graph_.process_id(), SIGSTOP);  // so that a block stays in it
    Clock::time_point killed;
    std::thread killer([&, id = graph_.process_id()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      killed = Clock::now();
      kill(id, SIGKILL);
    });
    while (process() == JobOutcome::done) continue;
    const auto back = Clock::now();
    killer.join();
    // It is stopped for long enough that the supervision may have noticed that before.
    return std::max(1.0, std::chrono::duration<double, std::nano>(back - killed).count());
  }

  // Then the system has to end each process before the graph knows of it.
  void lend() { lent_ = graph_.lend(4096); }

 private:
  // A block that is done is compared with the right one.
  JobOutcome process() {
    std::fill(output_.begin(), output_.end(), 0.0F);
    const JobOutcome outcome = graph_.process(input_.data(), output_.data(), block_of(frames));
    const auto is_right = [](float in, float out) { return out == 10 * in; };
    if (outcome == JobOutcome::done &&
        !std::equal(input_.begin(), input_.end(), output_.begin(), is_right)) {
      throw std::runtime_error("a block is wrong");
    }
    return outcome;
  }
  // Runs a block and returns whether another process than the killed one has done it.
  bool is_back(std::uint64_t ends) {
    try {
      process();
      return graph_.exits() != ends;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::context_lost) throw;
      return false;
    }
  }
  // Returns when the graph knows it.
  void end_process() {
    const std::uint64_t ends = graph_.exits();
    kill(graph_.process_id(), SIGKILL);
    while (graph_.exits() == ends) std::this_thread::yield();
  }

  static constexpr std::uint32_t frames = 256;
  static WorkerGraphOptions options(StandBy stand_by, bool dry_while_away) {
    WorkerGraphOptions made;
    set(made, stand_by);
    made.dry_while_away = dry_while_away;
    made.worker.crash_limit = 0;
    return made;
  }

  WorkerGraph graph_;
  WorkerBuffer lent_;
  const std::vector<float> input_ = counted(frames);
  std::vector<float> output_ = std::vector<float>(input_.size());
};

}  // namespace ctxbroker::bench
