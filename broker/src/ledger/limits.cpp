// SPDX-License-Identifier: Apache-2.0
#include "ledger/limits.hpp"

#include <unistd.h>

namespace ctxbroker::detail {
namespace {

// Half of the machine's memory. Nobody else can use what is pinned.
std::uint64_t pinned_memory_preset() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  return static_cast<std::uint64_t>(pages) / 2 * static_cast<std::uint64_t>(page);
}

}  // namespace

const std::array<LimitRow, limit_count>& limit_rows() noexcept {
  // Beyond what frameworks such as PyTorch hold, and below what makes a driver slow for all.
  static const std::array<LimitRow, limit_count> rows{
      {{Limit::device_memory, "driver_memory_budget", nullptr, "bytes of device memory", 0},
       {Limit::pinned_memory, "driver_limits.pinned_memory", &DriverLimits::pinned_memory,
        "bytes of pinned host memory", pinned_memory_preset()},
       {Limit::streams, "driver_limits.streams", &DriverLimits::streams, "streams", 4096},
       {Limit::events, "driver_limits.events", &DriverLimits::events, "events", 65536},
       {Limit::graphs, "driver_limits.graphs", &DriverLimits::graphs, "graphs", 16384},
       {Limit::modules, "driver_limits.modules", &DriverLimits::modules, "modules", 16384},
       {Limit::contexts, "driver_limits.contexts", &DriverLimits::contexts, "contexts", 64}}};
  return rows;
}

std::uint64_t Limits::need_of(const Holding& holding, Limit limit) noexcept {
  if (limit == Limit::device_memory) return holding.bytes;
  if (limit == Limit::pinned_memory) return holding.host_bytes;
  return limit_of(holding.kind) == limit ? 1 : 0;
}

std::optional<Limit> Limits::take(Holding& holding) noexcept {
  Budget& memory = of(Limit::device_memory);
  if (!memory.take(holding.bytes)) return Limit::device_memory;
  holding.budget = &memory;
  const Limit other = holding.host_bytes != 0 ? Limit::pinned_memory : limit_of(holding.kind);
  if (other == Limit::none) return std::nullopt;
  const std::uint64_t amount = need_of(holding, other);
  if (!of(other).take(amount)) {
    memory.give(holding.bytes);
    holding.budget = nullptr;
    return other;
  }
  holding.counted_in = &of(other);
  holding.amount = amount;
  return std::nullopt;
}

}  // namespace ctxbroker::detail
