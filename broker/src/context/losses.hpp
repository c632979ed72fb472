// How often anything was lost in this process that leases stand on: what was sound at a count is
// sound while the count is the same. Global because it is only ever compared, by all.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

inline constinit std::atomic<std::uint64_t> losses{1};

// After what was lost is marked so.
inline void count_loss() noexcept {
  losses.fetch_add(1, std::memory_order_release);
}

}  // namespace ctxbroker::detail
