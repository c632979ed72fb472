// SPDX-License-Identifier: Apache-2.0
// What a lease holds now, for the metrics. Counted by those who own the things.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

// Bytes of device memory that are counted, and limited where a limit is set. Any thread.
class Budget {
 public:
  // `limit` in bytes; 0: there is none.
  explicit Budget(std::uint64_t limit = 0) noexcept : limit_(limit) {}

  void set_limit(std::uint64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  std::uint64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }

  // False when they do not fit in: then nothing is taken.
  bool take(std::uint64_t bytes) noexcept {
    const std::uint64_t most = limit();
    std::uint64_t held = held_.load(std::memory_order_relaxed);
    do {
      if (most != 0 && (bytes > most || held > most - bytes)) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void give(std::uint64_t bytes) noexcept { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  void clear() noexcept { held_.store(0, std::memory_order_relaxed); }
  std::uint64_t held() const noexcept { return held_.load(std::memory_order_relaxed); }

  // The most that was held when raise_peak was called, which is done once the memory is there.
  std::uint64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void raise_peak() noexcept {
    const std::uint64_t now = held();
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<std::uint64_t> limit_, held_{0}, peak_{0};
};

// Any thread.
struct LeaseCounters {
  std::atomic<std::int64_t> streams{0};
  std::atomic<std::int64_t> events{0};
  std::atomic<std::int64_t> modules{0};
  std::atomic<std::int64_t> graphs{0};        // executable ones
  std::atomic<std::int64_t> allocations{0};   // device and pinned host memory
  std::atomic<std::int64_t> module_bytes{0};  // of the images that the modules came from
  Budget memory;                              // that tenants asked for; without a limit

  // Since the context was made.
  std::atomic<std::uint64_t> module_loads{0}, module_reloads{0}, module_unloads{0};
  std::atomic<std::uint64_t> module_load_nanoseconds{0};
};

}  // namespace ctxbroker::detail
