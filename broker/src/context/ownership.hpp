// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxbroker::detail {

// Rises when a stream, an event or an executable graph stops being somebody's, when a lease is lost
// or hung, when CUDA ends in the process, and when a tenant closes or has released a primary
// context. What was found out about whose a thing is, and which lease a handle stands for, holds
// until then.
inline constinit std::atomic<std::uint64_t> ownership_changes{0};
inline void ownership_changed() noexcept {
  ownership_changes.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace ctxbroker::detail
