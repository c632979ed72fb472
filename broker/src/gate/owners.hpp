// Who holds which handle of the driver: what tenants made through the gate, and what the broker
// made for them. Process-wide, for a handle is.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gate/holding.hpp"

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
  struct Key {
    Kind kind;
    std::uint64_t handle;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // Spread over all 64 bits, because handles are addresses that end with zeros.
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return ((key.handle >> 4) + static_cast<std::uint64_t>(key.kind)) * 0x9E3779B97F4A7C15U;
    }
  };
  // Threads that allocate at once seldom meet in one.
  struct alignas(64) Shard {
    std::mutex mutex;
    std::unordered_map<Key, Holding, Hash> holdings;
  };
  Shard& shard(const Key& key) noexcept { return shards_[(Hash{}(key) >> 32) % shards_.size()]; }
  // `use` is called with it, if somebody holds it.
  template <typename Use>
  void with(Kind kind, std::uint64_t handle, Use&& use) noexcept;
  template <typename Is>
  std::optional<Holding> remove_if(Kind kind, std::uint64_t handle, Is&& is) noexcept;

  std::array<Shard, 16> shards_;
};

Owners& owners() noexcept;

}  // namespace ctxbroker::detail
