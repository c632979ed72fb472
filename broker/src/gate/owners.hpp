// Who holds which handle of the driver. Tenants hold what they made through the gate and what the
// broker made for them. The book is the process's, because handles are.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gate/holding.hpp"

namespace ctxbroker::detail {

// Any thread. The driver reuses handle values: remove an entry before the driver ends the thing.
class Owners {
 public:
  // Replaces an older entry of the same handle, whose end nobody saw. Throws std::bad_alloc.
  void add(const Holding& holding);
  // Forgets it, and returns what it was. Nothing: nobody holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle) noexcept;
  // The same, but only if that tenant holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept;
  std::optional<TenantId> owner(Kind kind, std::uint64_t handle) noexcept;
  std::optional<std::uint64_t> extent(Kind kind, std::uint64_t handle) noexcept;
  // In the order of Kind.
  std::vector<Holding> held_by(TenantId tenant);
  // Forgets all that was made in a context that a tenant made and that has ended. Returns the bytes
  // of device memory among it.
  std::uint64_t forget_context(TenantId tenant, std::uint64_t context);
  // Notes that it ended with its context. Its handle stays known. Returns the bytes that it held.
  std::uint64_t end_with_context(Kind kind, std::uint64_t handle, TenantId tenant) noexcept;
  // Whether all of these addresses are in mappings, or reservations, that the tenant holds.
  bool holds_range(Kind kind, std::uint64_t address, std::uint64_t bytes,
                   TenantId tenant) const noexcept;

  // The first addresses of mappings, or reservations, that begin in this range, whoever holds them.
  // Throws std::bad_alloc.
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
