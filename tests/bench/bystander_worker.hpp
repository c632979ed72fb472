// SPDX-License-Identifier: Apache-2.0
// A worker that has nothing to do with what happens in another one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "ctxbroker/worker_graph.hpp"
#include "dying_worker.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {

// Block after block of sound, on a thread of its own.
class Bystander {
 public:
  Bystander() : thread_([this] { play(); }) {}
  ~Bystander() {
    ends_ = true;
    thread_.join();
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  // The longest time between two blocks that are done during `work`, in ns.
  template <typename Work>
  double longest_gap(const Work& work) {
    longest_ = 0;
    work();
    // A block that is held up counts when it is done.
    for (const std::uint64_t now = blocks_; blocks_ == now;) std::this_thread::yield();
    return longest_;
  }

 private:
  void play() {
    std::vector<float> block(std::size_t{frames} * channels);
    for (auto last = Clock::now(); !ends_; ++blocks_) {
      graph_.process(block.data(), block.data(), block_of(frames));
      const auto now = Clock::now();
      const double gap = std::chrono::duration<double, std::nano>(now - last).count();
      if (gap > longest_) longest_ = gap;
      last = now;
    }
  }

  static constexpr std::uint32_t frames = 256;
  WorkerGraph graph_ = gain_in_worker({}, frames);
  std::atomic<double> longest_{0};
  std::atomic<std::uint64_t> blocks_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace ctxbroker::bench
