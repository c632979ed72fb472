// A thing of the driver that somebody holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "context/lease.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

// In the order in which a tenant's things are given back. With code that stays in the process stay
// those up to `module`; those up to `peer_access` where that code has a runtime library; and none
// of the rest.
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
  nothing,
};
inline constexpr std::size_t kind_count = static_cast<std::size_t>(Kind::context) + 1;
const char* to_string(Kind kind) noexcept;  // "stream"

struct Holding {
  Kind kind = Kind::nothing;
  bool pooled = false;  // memory of a pool
  // It ended with its context when an earlier tenant of the code did. Code that stays may still use
  // the handle, which must not reach the driver.
  bool ended = false;
  TenantId tenant{};
  std::uint64_t handle = 0;  // the handle's value, or the address
  std::uint64_t bytes = 0;
  // The generation of the tenant's lease that it was made in. 0: it was made in none, or in a
  // context that the tenant made itself, which is `context`.
  std::uint64_t generation = 0;
  std::uint64_t context = 0;
  // Of a mapping or reservation, in bytes; of a pool, its device; of physical memory, how often it
  // was retained.
  std::uint64_t extent = 0;
};
static_assert(sizeof(Holding) == 48, "there may be many");

// Where it lives. A green context has streams of its own; other things made in it are the
// primary's, which outlives a green context. What belongs to the device outlives both.
Home home_of(const Holding& holding) noexcept;

}  // namespace ctxbroker::detail
