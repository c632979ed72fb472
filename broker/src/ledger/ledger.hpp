// SPDX-License-Identifier: Apache-2.0
// The one book of what tenants hold: what their code made through the gate, what the host made for
// them, and what instances made through the SDK. It is the process's, because handles are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "context/resources.hpp"
#include "context/shared_memory.hpp"
#include "ledger/holding.hpp"

namespace ctxbroker::detail {

// Any thread. The driver reuses handle values: remove an entry before the driver ends the thing.
class Ledger {
 public:
  // Adds an entry. It replaces an older one with the same handle, because that thing must have
  // ended unseen. An older entry stays if its thing ended with its lease and has another holder.
  // Memory of another process can have several entries. Throws std::bad_alloc.
  void add(Holding holding) { record(std::move(holding), false); }
  // Nothing: nobody holds it, or not that holder.
  using IfHeldBy = std::optional<Holder>;
  std::optional<Holding> find(Kind kind, std::uint64_t handle, IfHeldBy holder = {}) const noexcept;
  // The same, and forgets it.
  std::optional<Holding> remove(Kind kind, std::uint64_t handle, IfHeldBy holder = {}) noexcept;
  // For what a holder may hold several times (see `more_holds`): enters one hold. Throws
  // std::bad_alloc.
  void add_reference(Holding holding) { record(std::move(holding), true); }
  // The same for what that holder holds already. Does nothing if it does not.
  void count_reference(Kind kind, std::uint64_t handle, const Holder& holder) noexcept;
  // Takes one hold, and returns what it was before. The last one is forgotten.
  std::optional<Holding> remove_reference(Kind kind, std::uint64_t handle,
                                          IfHeldBy holder) noexcept;
  // The mapping, or reservation, of that holder that contains the address.
  std::optional<Holding> find_around(Kind kind, std::uint64_t address,
                                     IfHeldBy holder = {}) const noexcept;
  // The memory of that kind that contains the address, whoever holds it. `kind` is Kind::memory or
  // Kind::host_memory.
  std::optional<Holding> find_memory_at(std::uint64_t address,
                                        Kind kind = Kind::memory) const noexcept;
  // A registration of host memory that covers a part of this range.
  std::optional<Holding> find_registration(std::uint64_t address,
                                           std::uint64_t bytes) const noexcept;
  bool holds(const Holder& holder, Kind kind, std::uint64_t handle) const noexcept;
  // In the order of Kind. Throws std::bad_alloc.
  std::vector<Holding> held_by(const Holder& holder) const;
  // The things that the driver refused to end when their holders left them, in the order of Kind.
  // Throws std::bad_alloc.
  std::vector<Holding> given_up() const;
  // Returns the bytes of what that holder wanted to end and the driver refused to.
  std::uint64_t refused_bytes(const Holder& holder) const noexcept;
  // Returns whether `is_busy` returns true for a stream that was made in that generation of a
  // lease. None of these streams ends meanwhile, because drivers crash on the handle of one that
  // has ended.
  template <typename IsBusy>
  bool any_stream_in(std::uint64_t generation, IsBusy&& is_busy) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(entries_.lower_bound({Kind::stream, 0}), entries_.end(),
                       [&](const auto& one) {
                         const Holding& held = one.second;
                         return held.kind == Kind::stream && held.generation == generation &&
                                !held.ended && is_busy(reinterpret_cast<CUstream>(held.handle));
                       });
  }
  // Forgets all that was made in a context that a tenant's code made and that is about to end.
  // Returns it. Throws std::bad_alloc; then nothing is forgotten.
  std::vector<Holding> take_context(const Holder& holder, std::uint64_t context);
  // Notes that it ended with its context. Its handle stays known.
  void end_with_context(Kind kind, std::uint64_t handle, const Holder& holder) noexcept;
  // Returns whether all of these addresses are in mappings, or reservations, of that holder.
  bool holds_range(const Holder& holder, Kind kind, std::uint64_t address,
                   std::uint64_t bytes) const noexcept;
  // The first addresses of mappings, or reservations, that begin in this range, whoever holds them.
  // Throws std::bad_alloc.
  std::vector<std::uint64_t> starts_within(Kind kind, std::uint64_t address,
                                           std::uint64_t bytes) const;

 private:
  using Key = std::pair<Kind, std::uint64_t>;
  // The entries by their handles. A handle has several entries if earlier things with it ended with
  // their leases. The last entry is the newest.
  using Entries = std::multimap<Key, Holding>;
  void record(Holding holding, bool is_one_more_reference);
  Entries::const_iterator locate(Kind kind, std::uint64_t handle,
                                 const IfHeldBy& holder) const noexcept;
  // The same entry, changeable; not for the end.
  Holding& changeable(Entries::const_iterator entry) noexcept {
    return entries_.erase(entry, entry)->second;
  }

  mutable std::mutex mutex_;
  Entries entries_;
};

Ledger& ledger() noexcept;

// Enters what the broker has made in a lease. Its bytes are taken from `budget` already, if there
// is one. Throws std::bad_alloc; then it is ended again, and they are given back.
CUdeviceptr record(DeviceMemory memory, std::uint64_t bytes, const Holder& holder, Budget* budget);
CUstream record(Stream stream, const Holder& holder);
// Shared memory. `budget` is null for what another process holds.
CUdeviceptr record(const SharedMemory& memory, const std::shared_ptr<Lease>& lease,
                   const Holder& holder, Budget* budget);

}  // namespace ctxbroker::detail
