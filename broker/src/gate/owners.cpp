#include "gate/owners.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace ctxbroker::detail {
namespace {

// Mappings and reservations a second time, sorted by address.
struct Ranges {
  struct Range {
    std::uint64_t bytes;
    TenantId tenant;
  };
  std::mutex mutex;
  std::map<std::uint64_t, Range> mappings, reservations;

  static Ranges& one() {
    static auto* const ranges = new Ranges;  // never ended, as the owners
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
  const Key key{holding.kind, holding.handle};
  Shard& one = shard(key);
  try {
    const std::lock_guard lock(one.mutex);
    one.holdings.insert_or_assign(key, holding);
  } catch (const std::bad_alloc&) {
    if (has_range(holding.kind)) remove_range(holding.kind, holding.handle);
    throw;
  }
}

template <typename Is>
std::optional<Holding> Owners::remove_if(Kind kind, std::uint64_t handle, Is&& is) noexcept {
  std::optional<Holding> removed;
  {
    Shard& one = shard({kind, handle});
    const std::lock_guard lock(one.mutex);
    const auto found = one.holdings.find({kind, handle});
    if (found == one.holdings.end() || !is(found->second)) return removed;
    removed = found->second;
    one.holdings.erase(found);
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

template <typename Use>
void Owners::with(Kind kind, std::uint64_t handle, Use&& use) noexcept {
  Shard& one = shard({kind, handle});
  const std::lock_guard lock(one.mutex);
  const auto found = one.holdings.find({kind, handle});
  if (found != one.holdings.end()) use(found->second);
}

std::optional<TenantId> Owners::owner(Kind kind, std::uint64_t handle) noexcept {
  std::optional<TenantId> owner;
  with(kind, handle, [&](const Holding& one) { owner = one.tenant; });
  return owner;
}

std::optional<std::uint64_t> Owners::extent(Kind kind, std::uint64_t handle) noexcept {
  std::optional<std::uint64_t> extent;
  with(kind, handle, [&](const Holding& one) { extent = one.extent; });
  return extent;
}

std::vector<Holding> Owners::held_by(TenantId tenant) {
  std::vector<Holding> all;
  for (Shard& one : shards_) {
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

std::uint64_t Owners::end_with_context(Kind kind, std::uint64_t handle, TenantId tenant) noexcept {
  std::uint64_t bytes = 0;
  with(kind, handle, [&](Holding& one) {
    if (one.tenant != tenant) return;
    one.ended = true;
    bytes = std::exchange(one.bytes, 0);
  });
  return bytes;
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
