// SPDX-License-Identifier: Apache-2.0
// A plug-in of the campaign in a worker of its own, whose frames go on all the while.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "ctxbroker/worker_graph.hpp"
#include "watch.hpp"

namespace ctxbroker::campaign {

using Clock = std::chrono::steady_clock;

// The frames of a plug-in, or of several.
struct Score {
  std::uint64_t right = 0, wrong = 0, missing = 0;
  double longest_ms = 0;  // one frame, from its call to its end
};

struct PlayerOptions {
  std::filesystem::path library;
  std::chrono::milliseconds call_timeout{4000};
  std::uint64_t memory_limit = 0;
  unsigned crash_limit = 0;  // 0: the plug-in is never quarantined
  bool stand_by = false;     // a second process takes over
};

class Player {
 public:
  // `number` is its place in the watch, and gives its frames and factor.
  Player(int number, PlayerOptions options, soak::Watch& watch);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] const PlayerOptions& options() const noexcept { return options_; }
  [[nodiscard]] static std::string worker_name(int number);

  // While this is held, its own frames rest, and the graph is the holder's.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(playing_); }
  WorkerGraph& graph() noexcept { return graph_; }
  // One frame, by whoever holds it. The graph's errors are thrown. False: it is wrong.
  bool frame();

  // What its own frames have come to since the last call.
  Score take_score();
  // What the first of its frames that was not right came to since the last call; empty: all were.
  std::string take_complaint();
  // How many of its own frames have begun, and how many have ended.
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }

 private:
  void play();
  void play_one();

  const int number_;
  const PlayerOptions options_;
  soak::Watch& watch_;
  WorkerGraph graph_;
  std::mutex playing_;
  std::int64_t position_ = 0;
  std::mutex score_mutex_;
  Score score_;
  std::string complaint_;
  std::atomic<std::uint64_t> begun_{0}, ended_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ctxbroker::campaign
