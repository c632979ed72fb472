// SPDX-License-Identifier: Apache-2.0
// A thing of the driver that somebody holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "context/ending.hpp"
#include "context/lease.hpp"
#include "ctxbroker/tenant_id.hpp"

namespace ctxbroker::detail {

class Charge;

// The kinds of things, in the order in which a tenant's things are given back. If code stays in the
// process, its things up to `module` stay with it. If that code has a runtime library, its things
// up to `peer_access` stay too. The rest never stays.
enum class Kind : std::uint8_t {
  graph_memory,  // that graphs allocate for themselves; by address
  graph_exec,
  graph,
  user_object,  // its references are `extent`
  event,
  stream,
  link,  // an invocation of the driver's linker
  texture,
  surface,
  library,
  module,
  array,
  mipmapped_array,
  memory,              // device memory, managed too; by address
  host_memory,         // pinned; by address
  registration,        // of host memory; by address
  ipc_memory,          // another process's; by address
  external_memory,     // another API's
  external_semaphore,  // another API's
  graphics_resource,   // another API's
  mapping,             // of physical memory; by address
  reservation,         // of addresses
  physical,            // physical memory
  pool,
  own_pool,  // what the tenant has instead of a device's default pool
  peer_access,
  green_context,
  context,
  nothing,
};
inline constexpr std::size_t kind_count = static_cast<std::size_t>(Kind::context) + 1;
const char* to_string(Kind kind) noexcept;  // "stream"
// A limit on what a tenant's code may hold; see limits.hpp.
enum class Limit : std::uint8_t {
  device_memory,  // bytes
  pinned_memory,  // bytes
  streams,
  events,
  graphs,
  modules,
  contexts,
  none,
};
inline constexpr std::size_t limit_count = static_cast<std::size_t>(Limit::none);
// Returns the limit on the number of things of that kind.
Limit limit_of(Kind kind) noexcept;
// Returns whether the driver waits for work on the device before it ends a thing of that kind.
bool waits_for_work(Kind kind) noexcept;

// The way in which a thing was made.
enum class Origin : std::uint8_t {
  code,      // by a driver call of the tenant's own code, which the gate saw
  host_api,  // by the host, through Tenant
  sdk,       // by an instance of a plug-in, through the plug-in SDK
};

// The holder of a thing.
struct Holder {
  TenantId tenant{};  // origin code: the number of its GatedTenant, which a later tenant may have
  Origin origin = Origin::code;
  std::uint64_t activation = 0;  // origin sdk: the number of the instance's activation
  friend bool operator==(const Holder&, const Holder&) = default;
};

struct Holding {
  Kind kind = Kind::nothing;
  bool pooled = false;  // memory of a pool; a pool: of the host's memory
  // It ended with its context when an earlier tenant of the code did. Code that stays may still use
  // the handle, which must not reach the driver.
  bool ended = false;
  bool refused = false;   // the driver has refused to end it, and the holder has it still
  bool given_up = false;  // refused, and its holder has left it: Broker::poll tries again
  Holder holder{};
  std::uint64_t handle = 0;      // the handle's value, or the address
  std::uint64_t bytes = 0;       // of device memory
  std::uint64_t host_bytes = 0;  // of pinned memory
  // The generation of the tenant's lease that it was made in. 0: it was made in none, or in a
  // context that the tenant made itself, which is `context`.
  std::uint64_t generation = 0;
  std::uint64_t context = 0;
  // The bytes of a mapping, a reservation or memory to be shared; the device of a pool or a
  // context.
  std::uint64_t extent = 0;
  // How often more its holder holds it: physical memory that was retained, an attached context.
  std::uint64_t more_holds = 0;
  Budget* budget = nullptr;  // that its bytes are taken from; outlives it
  // The same for what else it needs of a limit, which is `amount`.
  Budget* counted_in = nullptr;
  std::uint64_t amount = 0;
  // The lease that it was made in; null where its origin is code, which must not keep a lease.
  std::shared_ptr<Lease> lease{};
  // The store that the memory came from and goes back to. Memory of a store counts as memory of a
  // pool. Null: it is the driver's memory.
  std::shared_ptr<MemoryStore> store{};
  // The charge for physical memory. It exists as long as a handle of the memory is held or a
  // mapping of it exists. So the handle's entry and those of the mappings share it.
  std::shared_ptr<const Charge> charge{};
};

// Returns the size of memory, which is a device's or the host's.
inline std::uint64_t size_of(const Holding& memory) noexcept {
  return memory.bytes + memory.host_bytes;
}

// Returns where the thing lives. A green context has streams of its own. Other things made in it
// belong to the primary context, which outlives the green one. Things of the device outlive both.
Home home_of(const Holding& holding) noexcept;

// Describes the end of the thing, which `call` makes and of which `after` learns. Throws
// std::bad_alloc.
Ending ending_of(const Holding& holding, std::function<CUresult()> call,
                 std::function<void(CUresult)> after);

// Counts it in its lease, if it has one. Its bytes are taken from its budget before it is made.
void count(const Holding& holding) noexcept;
// It has ended, or belongs to nobody any more: its budget and its lease count it no longer.
void stop_counting(const Holding& holding) noexcept;

}  // namespace ctxbroker::detail
