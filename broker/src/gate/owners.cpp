#include "gate/owners.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

namespace ctxbroker::detail {
namespace {

constexpr std::array<const char*, kind_count> names{"memory of a graph",
                                                    "executable graph",
                                                    "graph",
                                                    "event",
                                                    "stream",
                                                    "library",
                                                    "module",
                                                    "array",
                                                    "mipmapped array",
                                                    "device memory",
                                                    "pinned host memory",
                                                    "host registration",
                                                    "memory of another process",
                                                    "memory mapping",
                                                    "address reservation",
                                                    "physical memory",
                                                    "memory pool",
                                                    "memory pool for the default one",
                                                    "peer access",
                                                    "green context",
                                                    "context"};

struct Key {
  Kind kind;
  std::uint64_t handle;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    return static_cast<std::size_t>((key.handle >> 4) * 0x9E3779B97F4A7C15U) +
           static_cast<std::size_t>(key.kind);
  }
};

constexpr std::size_t shard_count = 16;

}  // namespace

const char* to_string(Kind kind) noexcept {
  return names[static_cast<std::size_t>(kind)];
}

Home home_of(const Holding& holding) noexcept {
  switch (holding.kind) {
    case Kind::stream:
    case Kind::event:
      return Home::context;
    case Kind::graph_memory:
    case Kind::mapping:
    case Kind::reservation:
    case Kind::physical:
    case Kind::pool:
    case Kind::own_pool:
      return Home::device;
    default:
      return holding.pooled ? Home::device : Home::memory;
  }
}

// Threads that allocate at once seldom meet in one.
struct alignas(64) Owners::Shard {
  using Holdings = std::unordered_map<Key, Holding, KeyHash>;
  std::mutex mutex;
  // Entries that were taken out, for the next ones: what allocates and frees all the time makes
  // none. The first lies in the mutex's cache line.
  std::size_t spare_count = 0;
  std::array<Holdings::node_type, 8> spare;
  Holdings holdings;

  void put(const Holding& holding) {
    const Key key{holding.kind, holding.handle};
    if (const auto found = holdings.find(key); found != holdings.end()) {
      found->second = holding;
    } else if (spare_count == 0) {
      holdings.emplace(key, holding);
    } else {
      Holdings::node_type& node = spare[--spare_count];
      node.key() = key;
      node.mapped() = holding;
      holdings.insert(std::move(node));
    }
  }
  Holding take(Holdings::const_iterator found) noexcept {
    const Holding holding = found->second;
    if (spare_count < spare.size()) {
      spare[spare_count++] = holdings.extract(found);
    } else {
      holdings.erase(found);
    }
    return holding;
  }

  static std::array<Shard, shard_count>& all() {
    // Never ended: threads of plug-ins may give things back until the process ends.
    static auto* const shards = new std::array<Shard, shard_count>;
    return *shards;
  }
};

namespace {

// Mappings and reservations once more, in the order of their addresses.
struct Ranges {
  struct Range {
    std::uint64_t bytes;
    TenantId tenant;
  };
  std::mutex mutex;
  std::map<std::uint64_t, Range> mappings, reservations;

  static Ranges& one() {
    static auto* const ranges = new Ranges;  // as the shards
    return *ranges;
  }
  std::map<std::uint64_t, Range>* of(Kind kind) noexcept {
    if (kind == Kind::mapping) return &mappings;
    return kind == Kind::reservation ? &reservations : nullptr;
  }
};

void add_range(const Holding& holding) {
  auto* const ranges = Ranges::one().of(holding.kind);
  if (ranges == nullptr) return;
  const std::lock_guard lock(Ranges::one().mutex);
  ranges->insert_or_assign(holding.handle, Ranges::Range{holding.extent, holding.tenant});
}

void remove_range(Kind kind, std::uint64_t address) noexcept {
  auto* const ranges = Ranges::one().of(kind);
  if (ranges == nullptr) return;
  const std::lock_guard lock(Ranges::one().mutex);
  ranges->erase(address);
}

}  // namespace

Owners::Shard& Owners::shard(Kind kind, std::uint64_t handle) noexcept {
  return Shard::all()[(KeyHash{}({kind, handle}) >> 32) % shard_count];
}

void Owners::add(const Holding& holding) {
  add_range(holding);
  Shard& one = shard(holding.kind, holding.handle);
  const std::lock_guard lock(one.mutex);
  one.put(holding);
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end()) return std::nullopt;
  const Holding holding = one.take(found);
  remove_range(kind, handle);
  return holding;
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end() || found->second.tenant != tenant) return std::nullopt;
  const Holding holding = one.take(found);
  remove_range(kind, handle);
  return holding;
}

std::optional<TenantId> Owners::owner(Kind kind, std::uint64_t handle) const noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end()) return std::nullopt;
  return found->second.tenant;
}

std::optional<std::uint64_t> Owners::extent(Kind kind, std::uint64_t handle) const noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end()) return std::nullopt;
  return found->second.extent;
}

std::vector<Holding> Owners::held_by(TenantId tenant) const {
  std::vector<Holding> all;
  for (Shard& one : Shard::all()) {
    const std::lock_guard lock(one.mutex);
    for (const auto& [key, holding] : one.holdings) {
      if (holding.tenant == tenant) all.push_back(holding);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Holding& a, const Holding& b) { return a.kind < b.kind; });
  return all;
}

std::uint64_t Owners::forget_context(TenantId tenant, std::uint64_t context) {
  std::uint64_t bytes = 0;
  for (const Holding& one : held_by(tenant)) {
    if (one.context != context || context == 0) continue;
    if (remove(one.kind, one.handle, tenant)) bytes += one.bytes;
  }
  return bytes;
}

bool Owners::add_bytes(Kind kind, std::uint64_t handle, TenantId tenant,
                       std::uint64_t bytes) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end() || found->second.tenant != tenant) return false;
  found->second.bytes += bytes;
  return true;
}

bool Owners::holds_range(Kind kind, std::uint64_t address, std::uint64_t bytes,
                         TenantId tenant) const noexcept {
  const auto* const ranges = Ranges::one().of(kind);
  if (ranges == nullptr || address + bytes < address) return false;
  const std::lock_guard lock(Ranges::one().mutex);
  auto range = ranges->upper_bound(address);
  if (range == ranges->begin()) return false;
  --range;
  for (const std::uint64_t end = address + bytes; address < end; ++range) {
    if (range == ranges->end() || range->second.tenant != tenant) return false;
    if (range->first > address || range->first + range->second.bytes <= address) return false;
    address = range->first + range->second.bytes;
  }
  return true;
}

Owners& owners() noexcept {
  static Owners one;
  return one;
}

}  // namespace ctxbroker::detail
