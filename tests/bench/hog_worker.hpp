// SPDX-License-Identifier: Apache-2.0
// A worker that keeps the device busy.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "ctxbroker/worker_graph.hpp"
#include "support/benchmark_main.hpp"

namespace ctxbroker::bench {

// While it runs, its large pictures keep the device busy.
class Hog {
 public:
  explicit Hog(bool quick) : edge_(quick ? 64 : 2048), nodes_(quick ? 1 : 32) {
    for (std::size_t node = 0; node < nodes_; ++node) graph_.set_parameter(node, "radius", 64);
    graph_.activate({edge_, edge_});
    pixels_ = graph_.lend(std::size_t{edge_} * edge_ * 4 * sizeof(float));
    thread_ = std::thread([this] { work(); });
  }
  ~Hog() {
    ends_ = true;
    run(true);
    thread_.join();
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

  void run(bool now) {
    const std::uint64_t before = pictures_;
    runs_ = now;
    runs_.notify_all();
    // Waits until its last picture has ended, or until it has done two.
    while (!ends_ && (now ? pictures_ < before + 2 : is_working_.load())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // While it does not run: for how long the device has worked for it.
  double device_seconds() {
    double all = 0;
    for (std::size_t node = 0; node < nodes_; ++node) {
      all += graph_.node_state(node).metrics.device_seconds;
    }
    return all;
  }
  // How long it has run.
  double seconds() const { return seconds_; }

 private:
  WorkerGraph make_graph() const {
    WorkerGraphDescription description{{{"in"}}, {{"out"}}, {}};
    description.nodes.resize(nodes_, {"", sample_plugin("blur")});
    WorkerGraphOptions options;
    options.graph.measure = true;
    options.worker.call_timeout = std::chrono::minutes(1);
    return WorkerGraph(std::move(description), options);
  }
  void work() {
    auto* const pixels = static_cast<float*>(pixels_.data());
    JobInfo job;
    job.width = job.height = edge_;
    for (;;) {
      is_working_ = runs_.load();
      runs_.wait(false);
      if (ends_) return;
      is_working_ = true;
      const auto begin = std::chrono::steady_clock::now();
      graph_.process(pixels, pixels, job);
      seconds_ = seconds_ +
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      ++pictures_;
    }
  }

  const std::uint32_t edge_;
  const std::size_t nodes_;
  WorkerGraph graph_ = make_graph();
  WorkerBuffer pixels_;
  std::atomic<bool> runs_{false}, is_working_{false}, ends_{false};
  std::atomic<std::uint64_t> pictures_{0};
  std::atomic<double> seconds_{0};
  std::thread thread_;
};

}  // namespace ctxbroker::bench
