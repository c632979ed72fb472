// What a lease holds now, for the metrics. Counted by those who own the things.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

// Any thread.
struct Holdings {
  std::atomic<std::int64_t> streams{0};
  std::atomic<std::int64_t> events{0};
  std::atomic<std::int64_t> modules{0};
  std::atomic<std::int64_t> graphs{0};              // executable ones
  std::atomic<std::int64_t> allocations{0};         // device and pinned host memory
  std::atomic<std::int64_t> module_bytes{0};        // of the images that the modules came from
  std::atomic<std::uint64_t> plugin_bytes{0};       // device memory that tenants asked for
  std::atomic<std::uint64_t> plugin_peak_bytes{0};  // the most there ever was of it

  // Since the context was made.
  std::atomic<std::uint64_t> module_loads{0}, module_reloads{0}, module_unloads{0};
  std::atomic<std::uint64_t> module_load_nanoseconds{0};

  void add_bytes(std::uint64_t bytes) noexcept {
    const std::uint64_t held = plugin_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::uint64_t peak = plugin_peak_bytes.load(std::memory_order_relaxed);
    while (held > peak &&
           !plugin_peak_bytes.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
    }
  }
  void remove_bytes(std::uint64_t bytes) noexcept {
    plugin_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }
};

}  // namespace ctxbroker::detail
