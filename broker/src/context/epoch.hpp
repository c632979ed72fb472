// The epochs of the process: what was seen to be so in one of them (that a lease is sound, that no
// timeline is recorded) is so as long as it lasts. Global because it is only ever compared, by all.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

inline constinit std::atomic<std::uint64_t> epoch{1};

// After what was so before is marked as not so any more.
inline void end_epoch() noexcept {
  epoch.fetch_add(1, std::memory_order_release);
}

}  // namespace ctxbroker::detail
