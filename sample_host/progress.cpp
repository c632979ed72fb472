#include "progress.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "terminal.hpp"

namespace ctxbroker::sample_host {

std::string format_progress(const std::string& label, std::optional<double> fraction,
                            double seconds, int columns) {
  std::array<char, 64> time{};
  std::snprintf(time.data(), time.size(), "%.1f s", seconds);
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

Progress::Progress(std::string label, bool enabled) : label_(std::move(label)) {
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
    const std::string line = format_progress(
        label_, fraction < 0 ? std::nullopt : std::optional(fraction), seconds, stderr_columns());
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
