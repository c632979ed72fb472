// What one instance counts while it works. Written by the thread that works, read by any.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

struct Counters {
  std::atomic<std::uint64_t> jobs{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> device_nanoseconds{0};
  std::atomic<std::uint64_t> strikes{0};
};

}  // namespace ctxbroker::detail
