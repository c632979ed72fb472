// Who holds which handle of the driver: what tenants made through the gate, and what the broker
// made for them. Process-wide, for a handle is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "gate/brief_lock.hpp"
#include "gate/holding.hpp"
#include "gate/holding_table.hpp"

namespace ctxbroker::detail {

// Any thread. Handle values are reused: whoever sees a thing end forgets it first.
class Owners {
 public:
  // An older entry of the same handle has ended unseen. Throws std::bad_alloc.
  void add(const Holding& holding);
  // Forgets it; what it was, or nothing when nobody holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle) noexcept;
  // The same, if that tenant holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept;
  std::optional<TenantId> owner(Kind kind, std::uint64_t handle) noexcept;
  std::optional<std::uint64_t> extent(Kind kind, std::uint64_t handle) noexcept;
  // In the order of Kind.
  std::vector<Holding> held_by(TenantId tenant);
  // A context that a tenant made has ended, and with it all that was made in it: the device memory
  // of that, in bytes.
  std::uint64_t forget_context(TenantId tenant, std::uint64_t context);
  // It has ended with its context, and its handle stays known. Returns the bytes that it held.
  std::uint64_t end_with_context(Kind kind, std::uint64_t handle, TenantId tenant) noexcept;
  // Whether all of these addresses are in mappings, or reservations, that the tenant holds.
  bool holds_range(Kind kind, std::uint64_t address, std::uint64_t bytes,
                   TenantId tenant) const noexcept;

  // Where those begin that lie in these addresses, whoever holds them. Throws std::bad_alloc.
  std::vector<std::uint64_t> starts_within(Kind kind, std::uint64_t address,
                                           std::uint64_t bytes) const;

 private:
  // Threads that allocate at once seldom meet in one.
  struct alignas(64) Shard {
    BriefLock lock;
    HoldingTable table;
  };
  Shard& shard(Kind kind, std::uint64_t handle) noexcept {
    return shards_[(HoldingTable::hash(kind, handle) >> 32) % shards_.size()];
  }
  template <typename Is>
  std::optional<Holding> remove_if(Kind kind, std::uint64_t handle, Is&& is) noexcept;

  std::array<Shard, 16> shards_;
};

Owners& owners() noexcept;

}  // namespace ctxbroker::detail
