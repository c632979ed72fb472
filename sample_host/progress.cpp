// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "observe/number_text.hpp"
#include "terminal.hpp"

namespace ctxbroker::sample_host {

namespace {

std::atomic<int> bars{0};  // that are shown now

std::string format_left(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::lround(std::min(seconds, 360'000.0)));
  std::array<char, 64> text{};
  if (whole < 60) {
    std::snprintf(text.data(), text.size(), "%d s left", static_cast<int>(whole));
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%d:%02d min left", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%d:%02d h left", static_cast<int>(whole / 3600),
                  static_cast<int>(whole % 3600 / 60));
  }
  return text.data();
}

}  // namespace

std::string format_progress(const std::string& label, std::optional<double> fraction,
                            double seconds, int columns, const std::optional<Amount>& amount) {
  std::string time = detail::fixed_text(seconds, 1) + " s";
  if (amount && fraction && *fraction > 0 && seconds > 0) {
    const double part = std::clamp(*fraction, 0.0, 1.0);
    time = detail::general_text(part * amount->total / seconds, 3) + " " + amount->rate + "  " +
           format_left(seconds / part * (1 - part));
  }
  std::string line = label + "  " + time;
  if (fraction) {
    const double part = std::clamp(*fraction, 0.0, 1.0);
    std::array<char, 16> percent{};
    std::snprintf(percent.data(), percent.size(), "%3d%%", static_cast<int>(part * 100));
    const int room = columns - static_cast<int>(line.size()) - 11;
    const int width = std::min(room, 40);
    line = label + " ";
    if (width >= 5) {
      const auto done = static_cast<std::size_t>(std::lround(part * width));
      line += "[" + std::string(done, '#') +
              std::string(static_cast<std::size_t>(width) - done, ' ') + "] ";
    }
    line += std::string(percent.data()) + "  " + time;
  }
  return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 0)));
}

std::string waiting_text(const std::vector<RunningCall>& calls, std::chrono::seconds at_least) {
  const auto longest = std::max_element(
      calls.begin(), calls.end(),
      [](const RunningCall& a, const RunningCall& b) { return a.elapsed < b.elapsed; });
  if (longest == calls.end() || longest->elapsed < at_least) return {};
  std::string name = longest->plugin.substr(longest->plugin.rfind('.') + 1);
  if (name.empty()) name = longest->library;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest->elapsed);
  return "waiting for " + name + " (" + longest->function + ") for " +
         std::to_string(seconds.count()) + " s";
}

WaitNotice::WaitNotice(bool enabled) {
  if (enabled) thread_ = std::thread([this] { look_until_stopped(); });
}

WaitNotice::~WaitNotice() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WaitNotice::look_until_stopped() {
  constexpr std::chrono::seconds long_enough{5};
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(250), [this] { return stopped_; })) {
    if (bars > 0) continue;
    const std::string text = waiting_text(running_calls(), long_enough);
    if (text.empty()) continue;
    std::fprintf(stderr, "sample_host: %s\n", text.c_str());
    return;
  }
}

Progress::Progress(std::string label, bool enabled, const std::optional<Amount>& amount)
    : label_(std::move(label)), amount_(amount) {
  if (!enabled || !stderr_is_terminal()) return;
  ++bars;
  thread_ = std::thread([this] { draw_until_stopped(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  thread_.join();
  --bars;
}

void Progress::draw_until_stopped() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  std::chrono::milliseconds pause{1000};
  bool drawn = false;
  while (!wake_.wait_for(lock, pause, [this] { return stopped_; })) {
    pause = std::chrono::milliseconds{100};
    const double fraction = fraction_.load(std::memory_order_relaxed);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const int columns = stderr_columns();
    std::string line = waiting_text(running_calls(), std::chrono::seconds(1));
    if (line.empty()) {
      line = format_progress(label_, fraction < 0 ? std::nullopt : std::optional(fraction), seconds,
                             columns, amount_);
    }
    line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(columns - 1, 0))));
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    std::fflush(stderr);
    drawn = true;
  }
  if (drawn) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

}  // namespace ctxbroker::sample_host
