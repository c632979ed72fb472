// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.hpp"

#include <cstddef>
#include <new>

#include "context/ownership.hpp"
#include "ledger/give_back.hpp"

namespace ctxbroker::detail {
namespace {

// After the entry has gone, and before the driver ends the thing.
void gone(Kind kind) noexcept {
  if (kind == Kind::stream || kind == Kind::event || kind == Kind::graph_exec) ownership_changed();
}

}  // namespace

void Ledger::record(Holding holding, bool is_one_more_reference) {
  Entries replaced;  // whose end may end a lease: that comes after the lock
  {
    const std::lock_guard lock(mutex_);
    const Key key{holding.kind, holding.handle};
    if (is_one_more_reference) {
      const auto found = locate(holding.kind, holding.handle, holding.holder);
      if (found != entries_.end()) {
        ++changeable(found).more_holds;
        return;
      }
    }
    const auto added = entries_.emplace(key, std::move(holding));
    for (auto one = entries_.lower_bound(key); one != added;) {
      const auto older = one++;
      const Holding& held = older->second;
      const bool is_gone = held.lease != nullptr && !held.lease->end_target(home_of(held));
      const bool is_same_holder = held.holder == added->second.holder;
      // The driver has one address for all that have opened memory, and ends it with the last one.
      const bool is_replaced =
          key.first == Kind::ipc_memory ? is_gone && is_same_holder : !is_gone || is_same_holder;
      if (is_replaced) replaced.insert(entries_.extract(older));
      gone(key.first);
    }
  }
  for (const auto& [key, held] : replaced) stop_counting(held);
}

// The newest one, or the newest of that holder.
Ledger::Entries::const_iterator Ledger::locate(Kind kind, std::uint64_t handle,
                                               const IfHeldBy& holder) const noexcept {
  const auto [begin, end] = entries_.equal_range({kind, handle});
  for (auto one = end; one != begin;) {
    --one;
    if (!holder || one->second.holder == *holder) return one;
  }
  return entries_.end();
}

std::optional<Holding> Ledger::find(Kind kind, std::uint64_t handle,
                                    IfHeldBy holder) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locate(kind, handle, holder);
  return found != entries_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<Holding> Ledger::remove(Kind kind, std::uint64_t handle, IfHeldBy holder) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locate(kind, handle, holder);
  if (found == entries_.end()) return std::nullopt;
  gone(kind);
  return std::move(entries_.extract(found).mapped());
}

std::optional<Holding> Ledger::remove_reference(Kind kind, std::uint64_t handle,
                                                IfHeldBy holder) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locate(kind, handle, holder);
  if (found == entries_.end()) return std::nullopt;
  if (found->second.more_holds == 0) return std::move(entries_.extract(found).mapped());
  const Holding before = found->second;
  --changeable(found).more_holds;
  return before;
}

void Ledger::count_reference(Kind kind, std::uint64_t handle, const Holder& holder) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locate(kind, handle, holder);
  if (found != entries_.end()) ++changeable(found).more_holds;
}

std::optional<Holding> Ledger::find_around(Kind kind, std::uint64_t address,
                                           IfHeldBy holder) const noexcept {
  const std::lock_guard lock(mutex_);
  auto range = entries_.upper_bound({kind, address});
  if (range == entries_.begin()) return std::nullopt;
  const Holding& one = (--range)->second;
  const bool is_it = range->first.first == kind && (!holder || one.holder == *holder) &&
                     address - one.handle < one.extent;
  return is_it ? std::optional(one) : std::nullopt;
}

std::optional<Holding> Ledger::find_memory_at(std::uint64_t address, Kind kind) const noexcept {
  const std::lock_guard lock(mutex_);
  auto range = entries_.upper_bound({kind, address});
  if (range == entries_.begin()) return std::nullopt;
  const Holding& one = (--range)->second;
  const std::uint64_t bytes = kind == Kind::memory ? one.bytes : one.host_bytes;
  const bool is_it =
      range->first.first == kind && (address == one.handle || address - one.handle < bytes);
  return is_it ? std::optional(one) : std::nullopt;
}

std::optional<Holding> Ledger::find_registration(std::uint64_t address,
                                                 std::uint64_t bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto behind = entries_.lower_bound({Kind::registration, address + bytes});
  if (behind == entries_.begin()) return std::nullopt;
  const auto& [key, one] = *std::prev(behind);
  const bool is_it = key.first == Kind::registration && one.handle + one.host_bytes > address;
  return is_it ? std::optional(one) : std::nullopt;
}

bool Ledger::holds(const Holder& holder, Kind kind, std::uint64_t handle) const noexcept {
  const std::lock_guard lock(mutex_);
  return locate(kind, handle, holder) != entries_.end();
}

std::vector<Holding> Ledger::held_by(const Holder& holder) const {
  std::vector<Holding> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, holding] : entries_) {
    if (holding.holder == holder) all.push_back(holding);
  }
  return all;
}

std::vector<Holding> Ledger::given_up() const {
  std::vector<Holding> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, holding] : entries_) {
    if (holding.given_up) all.push_back(holding);
  }
  return all;
}

std::uint64_t Ledger::refused_bytes(const Holder& holder) const noexcept {
  std::uint64_t bytes = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, holding] : entries_) {
    if (holding.refused && holding.holder == holder) bytes += holding.bytes;
  }
  return bytes;
}

std::vector<Holding> Ledger::take_context(const Holder& holder, std::uint64_t context) {
  std::vector<Holding> all = held_by(holder);
  std::erase_if(all, [&](const Holding& one) {
    return one.context != context || context == 0 || !remove(one.kind, one.handle, holder);
  });
  return all;
}

void Ledger::end_with_context(Kind kind, std::uint64_t handle, const Holder& holder) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locate(kind, handle, holder);
  if (found == entries_.end()) return;
  auto entry = entries_.extract(found);
  stop_counting(entry.mapped());
  entry.mapped().ended = true;
  entry.mapped().bytes = entry.mapped().amount = 0;
  entries_.insert(std::move(entry));
  gone(kind);
}

bool Ledger::holds_range(const Holder& holder, Kind kind, std::uint64_t address,
                         std::uint64_t bytes) const noexcept {
  if (address + bytes < address) return false;
  const std::lock_guard lock(mutex_);
  auto range = entries_.upper_bound({kind, address});
  if (range == entries_.begin()) return false;
  --range;
  for (const std::uint64_t end = address + bytes; address < end; ++range) {
    if (range == entries_.end() || range->first.first != kind) return false;
    const Holding& one = range->second;
    if (!(one.holder == holder) || one.handle > address || one.handle + one.extent <= address) {
      return false;
    }
    address = one.handle + one.extent;
  }
  return true;
}

std::vector<std::uint64_t> Ledger::starts_within(Kind kind, std::uint64_t address,
                                                 std::uint64_t bytes) const {
  std::vector<std::uint64_t> starts;
  const std::lock_guard lock(mutex_);
  for (auto range = entries_.lower_bound({kind, address});
       range != entries_.end() && range->first.first == kind &&
       range->second.handle - address < bytes;
       ++range) {
    starts.push_back(range->second.handle);
  }
  return starts;
}

Ledger& ledger() noexcept {
  // Never ended: threads of plug-ins may give things back until the process ends.
  alignas(Ledger) static std::byte place[sizeof(Ledger)];
  static auto* const one = new (place) Ledger;
  return *one;
}

namespace {

template <typename Owned>
void record_made(Owned& made, Holding holding) {
  holding.lease = made.lease();
  holding.generation = holding.lease->generation();
  count(holding);
  try {
    ledger().add(holding);
  } catch (const std::bad_alloc&) {
    stop_counting(holding);
    throw;
  }
  made.detach();
}

}  // namespace

CUdeviceptr record(DeviceMemory memory, std::uint64_t bytes, const Holder& holder, Budget* budget) {
  const CUdeviceptr address = memory.get();
  record_made(memory, {.kind = Kind::memory,
                       .pooled = memory.store() != nullptr,
                       .holder = holder,
                       .handle = address,
                       .bytes = bytes,
                       .budget = budget,
                       .store = memory.store()});
  return address;
}

CUstream record(Stream stream, const Holder& holder) {
  CUstream const handle = stream.get();
  record_made(
      stream,
      {.kind = Kind::stream, .holder = holder, .handle = reinterpret_cast<std::uint64_t>(handle)});
  return handle;
}

CUdeviceptr record(const SharedMemory& memory, const std::shared_ptr<Lease>& lease,
                   const Holder& holder, Budget* budget) {
  using How = SharedMemory::How;
  Holding holding{.kind = memory.how == How::mapped      ? Kind::mapping
                          : memory.how == How::allocated ? Kind::memory
                                                         : Kind::ipc_memory,
                  .holder = holder,
                  .handle = memory.address,
                  .bytes = budget != nullptr ? memory.bytes : 0,
                  .generation = lease->generation(),
                  .extent = memory.bytes,
                  .budget = budget,
                  .lease = lease};
  count(holding);
  try {
    ledger().add(holding);
  } catch (const std::bad_alloc&) {
    static_cast<void>(end_in_lease(holding, true));
    throw;
  }
  return memory.address;
}

}  // namespace ctxbroker::detail
