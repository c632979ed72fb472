// SPDX-License-Identifier: Apache-2.0
// A progress bar on standard error: only on a terminal, and only when the work lasts.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/running_call.hpp"

namespace ctxbroker::sample_host {

// What the whole work is: 100 frames, or 60 seconds of sound.
struct Amount {
  double total;
  const char* rate;  // how much of it a second does: "frames/s", "times real time"
};

// One line of at most `columns` characters: "processing [#####     ]  50%  1.2 s". Without a
// fraction (0 to 1) it shows the time alone. With an amount, it shows the rate and the time left
// instead of the time: "12.5 frames/s  4 s left".
std::string format_progress(const std::string& label, std::optional<double> fraction,
                            double seconds, int columns, const std::optional<Amount>& amount = {});

// What a host that waits can say: "waiting for blur (process) for 3 s". Of several calls, the
// longest one. Empty: none has lasted as long.
std::string waiting_text(const std::vector<RunningCall>& calls, std::chrono::seconds at_least);

// Says once on standard error that a plug-in's function, or its work, has lasted for 5 s, unless a
// progress bar shows it.
class WaitNotice {
 public:
  explicit WaitNotice(bool enabled);
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;
  ~WaitNotice();

 private:
  void look_until_stopped();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;
};

// Draws from a thread of its own, so that it goes on while one long call runs. Draws nothing in
// its first second, and removes its line when it ends. Names the plug-in that has been waited for
// during a second.
class Progress {
 public:
  Progress(std::string label, bool enabled, const std::optional<Amount>& amount = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Any thread. Below 0: not known.
  void set(double fraction) noexcept { fraction_.store(fraction, std::memory_order_relaxed); }

 private:
  void draw_until_stopped();

  std::string label_;
  std::optional<Amount> amount_;
  std::atomic<double> fraction_{-1};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace ctxbroker::sample_host
