// Who holds which handle of the driver: what tenants made through the gate, and what the broker
// made for them. Process-wide, for a handle is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "context/lease.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// In the order in which a tenant's things are given back.
enum class Kind : std::uint8_t {
  graph_memory,  // that graphs allocate for themselves; by address
  graph_exec,
  graph,
  event,
  stream,
  library,
  module,
  array,
  mipmapped_array,
  memory,        // device memory, managed too; by address
  host_memory,   // pinned; by address
  registration,  // of host memory; by address
  ipc_memory,    // another process's; by address
  mapping,       // of physical memory; by address
  reservation,   // of addresses
  physical,      // physical memory
  pool,
  own_pool,  // what the tenant has instead of a device's default pool
  peer_access,
  green_context,
  context,
};
inline constexpr std::size_t kind_count = static_cast<std::size_t>(Kind::context) + 1;
const char* to_string(Kind kind) noexcept;  // "stream"

struct Holding {
  Kind kind = Kind::memory;
  std::uint64_t handle = 0;  // the handle's value, or the address
  std::uint64_t bytes = 0;
  // The life of the tenant's lease that it was made in; 0: in none, or in a context that the tenant
  // made itself, which is `context`.
  std::uint64_t life = 0;
  std::uint64_t context = 0;
  TenantId tenant{};
  bool pooled = false;       // memory of a pool
  std::uint64_t extent = 0;  // of a mapping or reservation, in bytes; of a pool, its device
};

// Where it lives: a green context has streams of its own, and what is of no context outlives them
// all; the rest is the primary's, which outlives a green one.
Home home_of(const Holding& holding) noexcept;

// Any thread. Handle values are reused: whoever sees a thing end forgets it first.
class Owners {
 public:
  // An older entry of the same handle has ended unseen. Throws std::bad_alloc.
  void add(const Holding& holding);
  // Forgets it; what it was, or nothing when nobody holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle) noexcept;
  // The same, if that tenant holds it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept;
  std::optional<TenantId> owner(Kind kind, std::uint64_t handle) const noexcept;
  std::optional<std::uint64_t> extent(Kind kind, std::uint64_t handle) const noexcept;
  // In the order of Kind.
  std::vector<Holding> held_by(TenantId tenant) const;
  // A context that a tenant made has ended, and with it all that was made in it: the device memory
  // of that, in bytes.
  std::uint64_t forget_context(TenantId tenant, std::uint64_t context);
  // Counts more bytes for what that tenant holds; false when it does not.
  bool add_bytes(Kind kind, std::uint64_t handle, TenantId tenant, std::uint64_t bytes) noexcept;
  // Whether all of these addresses are in mappings, or reservations, that the tenant holds.
  bool holds_range(Kind kind, std::uint64_t address, std::uint64_t bytes,
                   TenantId tenant) const noexcept;

 private:
  struct Shard;
  static Shard& shard(Kind kind, std::uint64_t handle) noexcept;
};

Owners& owners() noexcept;

}  // namespace ctxbroker::detail
