// SPDX-License-Identifier: Apache-2.0
#include "player.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>

#include "ctxbroker/error.hpp"
#include "frames.hpp"
#include "support/child_process.hpp"

namespace ctxbroker::campaign {
namespace {

using std::chrono::milliseconds;

WorkerGraph made(int number, const PlayerOptions& options) {
  WorkerGraphDescription description{{{"in"}}, {{"out"}}, {{"hostile", options.library}}};
  WorkerGraphOptions with;
  with.worker.name = Player::worker_name(number);
  for (const auto& [variable, value] : signals_stay_signals) {
    with.worker.environment.push_back(variable + "=" + value);
  }
  with.worker.environment.emplace_back("LSAN_OPTIONS=detect_leaks=0");
  with.worker.call_timeout = options.call_timeout;
  with.worker.start_timeout = std::chrono::seconds(60);
  with.worker.heartbeat_timeout = std::chrono::seconds(10);  // the machine may be busy
  with.worker.memory_limit = options.memory_limit;
  with.worker.crash_limit = options.crash_limit;
  with.stand_by = options.stand_by;
  with.stand_by_memory = std::uint64_t{1} << 30;  // much more than a block takes
  // No end is forgiven while the campaign runs, so that the quarantines are known in advance.
  with.worker.crash_window = with.worker.quiet_interval = std::chrono::hours(24);
  // A kernel that hangs is named by the broker in the worker, before the host's patience ends.
  with.job_timeout = options.call_timeout * 3 / 4;
  return WorkerGraph(std::move(description), with);
}

}  // namespace

std::string Player::worker_name(int number) {
  return "player " + std::to_string(number);
}

Player::Player(int number, PlayerOptions options, soak::Watch& watch)
    : number_(number), options_(std::move(options)), watch_(watch), graph_(made(number, options_)) {
  graph_.set_parameter(0, "factor", factor_of(number));
  graph_.activate({width, height});
  thread_ = std::thread([this] { play(); });
}

Player::~Player() {
  stop_ = true;
  thread_.join();
}

bool Player::frame() {
  const std::int64_t position = position_++;
  const std::vector<float> input = input_of(number_, position);
  std::vector<float> output = empty_output();
  const JobOutcome outcome = graph_.process(input.data(), output.data(), job_of(position));
  return outcome == JobOutcome::done && output == expected_of(number_, position);
}

void Player::play() {
  const auto place = static_cast<std::size_t>(number_);
  while (!stop_) {
    watch_.stands(place, "rests", number_);
    {
      const auto held = hold();
      watch_.stands(place, "plays", number_);
      play_one();
    }
    watch_.leaves(place);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void Player::play_one() {
  ++begun_;
  Score one;
  std::string complaint;
  const auto begin = Clock::now();
  try {
    const std::int64_t position = position_;
    ++(frame() ? one.right : one.wrong);
    if (one.wrong != 0) complaint = "frame " + std::to_string(position) + " is wrong";
  } catch (const std::exception& error) {
    one.missing = 1;
    complaint = std::string("a frame is missing: ") + error.what();
  }
  one.longest_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  {
    const std::lock_guard lock(score_mutex_);
    score_.right += one.right;
    score_.wrong += one.wrong;
    score_.missing += one.missing;
    score_.longest_ms = std::max(score_.longest_ms, one.longest_ms);
    if (complaint_.empty()) complaint_ = complaint;
  }
  ++ended_;
}

Score Player::take_score() {
  const std::lock_guard lock(score_mutex_);
  return std::exchange(score_, {});
}

std::string Player::take_complaint() {
  const std::lock_guard lock(score_mutex_);
  return std::exchange(complaint_, {});
}

}  // namespace ctxbroker::campaign
