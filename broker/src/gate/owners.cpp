#include "gate/owners.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

namespace ctxbroker::detail {
namespace {

constexpr std::array<const char*, kind_count> names{"executable graph",
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
                                                    "address reservation",
                                                    "physical memory",
                                                    "memory pool",
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

// Threads that allocate at once seldom meet in one.
struct alignas(64) Owners::Shard {
  std::mutex mutex;
  std::unordered_map<Key, Holding, KeyHash> holdings;

  static std::array<Shard, shard_count>& all() {
    // Never ended: threads of plug-ins may give things back until the process ends.
    static auto* const shards = new std::array<Shard, shard_count>;
    return *shards;
  }
};

Owners::Shard& Owners::shard(Kind kind, std::uint64_t handle) noexcept {
  return Shard::all()[(KeyHash{}({kind, handle}) >> 32) % shard_count];
}

void Owners::add(const Holding& holding) {
  Shard& one = shard(holding.kind, holding.handle);
  const std::lock_guard lock(one.mutex);
  one.holdings.insert_or_assign({holding.kind, holding.handle}, holding);
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end()) return std::nullopt;
  const Holding holding = found->second;
  one.holdings.erase(found);
  return holding;
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end() || found->second.tenant != tenant) return std::nullopt;
  const Holding holding = found->second;
  one.holdings.erase(found);
  return holding;
}

std::optional<TenantId> Owners::owner(Kind kind, std::uint64_t handle) const noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found == one.holdings.end()) return std::nullopt;
  return found->second.tenant;
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

void Owners::forget_context(TenantId tenant, std::uint64_t context) {
  for (const Holding& one : held_by(tenant)) {
    if (one.context == context && context != 0) remove(one.kind, one.handle, tenant);
  }
}

Owners& owners() noexcept {
  static Owners one;
  return one;
}

}  // namespace ctxbroker::detail
