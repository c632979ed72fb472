// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "terminal.hpp"

namespace ctxbroker::sample_host {

namespace {

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
  std::array<char, 64> time{};
  std::snprintf(time.data(), time.size(), "%.1f s", seconds);
  if (amount && fraction && *fraction > 0 && seconds > 0) {
    const double part = std::clamp(*fraction, 0.0, 1.0);
    std::snprintf(time.data(), time.size(), "%.3g %s  %s", part * amount->total / seconds,
                  amount->rate, format_left(seconds / part * (1 - part)).c_str());
  }
  std::string line = label + "  " + time.data();
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
    line += std::string(percent.data()) + "  " + time.data();
  }
  return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 0)));
}

Progress::Progress(std::string label, bool enabled, const std::optional<Amount>& amount)
    : label_(std::move(label)), amount_(amount) {
  if (enabled && stderr_is_terminal()) thread_ = std::thread([this] { draw_until_stopped(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
  thread_.join();
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
    const std::string line =
        format_progress(label_, fraction < 0 ? std::nullopt : std::optional(fraction), seconds,
                        stderr_columns(), amount_);
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
