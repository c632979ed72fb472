// What is counted while plug-ins work. Written by the threads that work, read by any.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

// Of an instance, and of a lease.
struct WorkCounters {
  std::atomic<std::uint64_t> jobs{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> device_nanoseconds{0};
};

// Of an instance.
struct Counters : WorkCounters {
  std::atomic<std::uint64_t> strikes{0};
  std::atomic<std::uint64_t> graph_jobs{0};
};

}  // namespace ctxbroker::detail
