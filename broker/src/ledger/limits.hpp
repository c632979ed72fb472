// SPDX-License-Identifier: Apache-2.0
// Limits on what a tenant's code may hold through the driver, in one table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ctxbroker/driver_limits.hpp"
#include "ledger/holding.hpp"

namespace ctxbroker::detail {

struct LimitRow {
  Limit limit;
  // The limit's name in TenantOptions and policy files: "driver_limits.streams", or
  // "driver_memory_budget" for device memory.
  const char* name;
  std::optional<std::uint64_t> DriverLimits::*member;  // null: device memory
  const char* what;                                    // "streams", "bytes of pinned host memory"
  std::uint64_t preset;                                // 0: no limit
};
// In the order of Limit.
const std::array<LimitRow, limit_count>& limit_rows() noexcept;

// The amounts that a tenant's code holds, and the limits on them. Any thread.
class Limits {
 public:
  Budget& of(Limit limit) noexcept { return budgets_[static_cast<std::size_t>(limit)]; }

  // Takes what the holding will need before it is made, so that threads cannot get past a limit
  // together, and notes in the holding where that goes back to (stop_counting). Returns the limit
  // that has no room for it; then nothing is taken.
  std::optional<Limit> take(Holding& holding) noexcept;
  // Returns how much of that limit the holding would need.
  static std::uint64_t need_of(const Holding& holding, Limit limit) noexcept;

 private:
  std::array<Budget, limit_count> budgets_;
};

}  // namespace ctxbroker::detail
