// SPDX-License-Identifier: Apache-2.0
// Counters of plug-in work. Working threads write them; any thread reads them.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

// Kept for each instance and for each lease.
struct WorkCounters {
  std::atomic<std::uint64_t> jobs{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> device_nanoseconds{0};
};

// Kept for each instance.
struct Counters : WorkCounters {
  std::atomic<std::uint64_t> strikes{0};
  std::atomic<std::uint64_t> graph_jobs{0};
  std::atomic<std::uint64_t> late_jobs{0};
};

}  // namespace ctxbroker::detail
