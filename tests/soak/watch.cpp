// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace ctxbroker::soak {

Watch::Watch(std::size_t threads, Clock::duration patience, Clock::duration limit, int output)
    : places_(threads),
      patience_(patience),
      limit_(limit),
      output_(output),
      looking_([this](const std::stop_token& stop) { look(stop); }) {}

Watch::~Watch() {
  looking_.request_stop();
}

void Watch::stands(std::size_t thread, const char* doing, int seat) noexcept {
  Place& place = places_[thread];
  place.seat.store(seat, std::memory_order_relaxed);
  place.since.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  place.doing.store(doing, std::memory_order_release);
}

void Watch::leaves(std::size_t thread) noexcept {
  places_[thread].doing.store(nullptr, std::memory_order_release);
}

void Watch::look(const std::stop_token& stop) const {
  std::mutex mutex;
  std::condition_variable_any timer;
  std::unique_lock lock(mutex);
  while (!timer.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; })) {
    if (stop.stop_requested()) return;
    const auto now = Clock::now();
    if (now - begin_ > limit_) give_up("the time is over");
    for (const Place& place : places_) {
      const Clock::time_point since{Clock::duration(place.since.load())};
      if (place.doing.load(std::memory_order_acquire) != nullptr && now - since > patience_) {
        give_up("a thread does not go on");
      }
    }
  }
}

// Nothing is ended in order: whatever is stuck may hold any lock.
void Watch::give_up(const char* why) const {
  dprintf(output_, "STUCK: %s\n", why);
  for (std::size_t thread = 0; thread < places_.size(); ++thread) {
    const Place& place = places_[thread];
    const char* doing = place.doing.load();
    const Clock::time_point since{Clock::duration(place.since.load())};
    dprintf(output_, "  thread %zu: %s, plug-in %d, for %.1f s\n", thread,
            doing != nullptr ? doing : "over", place.seat.load(),
            std::chrono::duration<double>(Clock::now() - since).count());
  }
  _exit(stuck_status);
}

}  // namespace ctxbroker::soak
