#include "gate/owners.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace ctxbroker::detail {
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
    static auto* const ranges = new Ranges;  // as the owners
    return *ranges;
  }
  std::map<std::uint64_t, Range>& of(Kind kind) noexcept {
    return kind == Kind::mapping ? mappings : reservations;
  }
};

bool has_range(Kind kind) noexcept {
  return kind == Kind::mapping || kind == Kind::reservation;
}

void add_range(const Holding& holding) {
  Ranges& ranges = Ranges::one();
  const std::lock_guard lock(ranges.mutex);
  ranges.of(holding.kind)
      .insert_or_assign(holding.handle, Ranges::Range{holding.extent, holding.tenant});
}

void remove_range(Kind kind, std::uint64_t address) noexcept {
  Ranges& ranges = Ranges::one();
  const std::lock_guard lock(ranges.mutex);
  ranges.of(kind).erase(address);
}

}  // namespace

void Owners::add(const Holding& holding) {
  if (has_range(holding.kind)) add_range(holding);
  Shard& one = shard(holding.kind, holding.handle);
  try {
    const std::lock_guard lock(one.lock);
    one.table.put(holding);
  } catch (const std::bad_alloc&) {
    if (has_range(holding.kind)) remove_range(holding.kind, holding.handle);
    throw;
  }
}

template <typename Is>
std::optional<Holding> Owners::remove_if(Kind kind, std::uint64_t handle, Is&& is) noexcept {
  std::optional<Holding> removed;
  {
    Shard& one = shard(kind, handle);
    const std::lock_guard lock(one.lock);
    const Holding* const found = one.table.find(kind, handle);
    if (found == nullptr || !is(*found)) return removed;
    removed = one.table.take(found);
  }
  if (has_range(kind)) remove_range(kind, handle);
  return removed;
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle) noexcept {
  return remove_if(kind, handle, [](const Holding&) { return true; });
}

std::optional<Holding> Owners::remove(Kind kind, std::uint64_t handle, TenantId tenant) noexcept {
  return remove_if(kind, handle, [&](const Holding& one) { return one.tenant == tenant; });
}

std::optional<TenantId> Owners::owner(Kind kind, std::uint64_t handle) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.lock);
  const Holding* const found = one.table.find(kind, handle);
  return found != nullptr ? std::optional(found->tenant) : std::nullopt;
}

std::optional<std::uint64_t> Owners::extent(Kind kind, std::uint64_t handle) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.lock);
  const Holding* const found = one.table.find(kind, handle);
  return found != nullptr ? std::optional(found->extent) : std::nullopt;
}

std::vector<Holding> Owners::held_by(TenantId tenant) {
  std::vector<Holding> all;
  for (Shard& one : shards_) {
    for (std::size_t wanted = 0;;) {  // room is made without the lock
      all.reserve(all.size() + wanted);
      const std::lock_guard lock(one.lock);
      wanted = 0;
      one.table.each([&](const Holding& holding) { wanted += holding.tenant == tenant ? 1 : 0; });
      if (all.capacity() - all.size() < wanted) continue;
      one.table.each([&](const Holding& holding) {
        if (holding.tenant == tenant) all.push_back(holding);
      });
      break;
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

std::uint64_t Owners::end_with_context(Kind kind, std::uint64_t handle, TenantId tenant) noexcept {
  Shard& one = shard(kind, handle);
  const std::lock_guard lock(one.lock);
  Holding* const found = one.table.find(kind, handle);
  if (found == nullptr || found->tenant != tenant) return 0;
  found->ended = true;
  return std::exchange(found->bytes, 0);
}

bool Owners::holds_range(Kind kind, std::uint64_t address, std::uint64_t bytes,
                         TenantId tenant) const noexcept {
  if (!has_range(kind) || address + bytes < address) return false;
  Ranges& all = Ranges::one();
  const std::lock_guard lock(all.mutex);
  const auto& ranges = all.of(kind);
  auto range = ranges.upper_bound(address);
  if (range == ranges.begin()) return false;
  --range;
  for (const std::uint64_t end = address + bytes; address < end; ++range) {
    if (range == ranges.end() || range->second.tenant != tenant) return false;
    if (range->first > address || range->first + range->second.bytes <= address) return false;
    address = range->first + range->second.bytes;
  }
  return true;
}

std::vector<std::uint64_t> Owners::starts_within(Kind kind, std::uint64_t address,
                                                 std::uint64_t bytes) const {
  std::vector<std::uint64_t> starts;
  Ranges& all = Ranges::one();
  const std::lock_guard lock(all.mutex);
  const auto& ranges = all.of(kind);
  for (auto range = ranges.lower_bound(address);
       range != ranges.end() && range->first - address < bytes; ++range) {
    starts.push_back(range->first);
  }
  return starts;
}

Owners& owners() noexcept {
  // Never ended: threads of plug-ins may give things back until the process ends.
  alignas(Owners) static std::byte place[sizeof(Owners)];
  static auto* const one = new (place) Owners;
  return *one;
}

}  // namespace ctxbroker::detail
