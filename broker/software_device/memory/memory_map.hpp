// SPDX-License-Identifier: Apache-2.0
// Which addresses a kernel may touch: the software device's record of live allocations. Device
// addresses are host addresses (one address space, as with the real driver's unified addressing).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "memory/owner.hpp"

namespace ctxbroker::software {

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;  // end is one past the last byte

  bool operator==(const AddressRange&) const = default;
};

// Memory as a fault describes it. The names stay for ever; null: unknown.
struct Allocation {
  AddressRange range;
  const char* owner = nullptr;     // who allocated it
  const char* freed_by = nullptr;  // of memory that was freed
};

// What lies around an address that no live range holds.
struct Surroundings {
  std::optional<Allocation> freed;         // it held the address, and was freed
  std::optional<Allocation> below, above;  // the nearest live ones
};

// The live ranges at one moment, sorted by address; immutable, so threads share it without a lock.
using AddressRanges = std::vector<AddressRange>;

// The range of `ranges` (sorted, disjoint) that holds `address`.
std::optional<AddressRange> find_range(const AddressRanges& ranges,
                                       std::uintptr_t address) noexcept;

// Thread-safe. Readers are engines (a look-up per new range; engines cache the last ones), writers
// are allocations. Ranges never overlap.
class MemoryMap {
 public:
  // Throws std::invalid_argument for an empty range and for one that overlaps a live one.
  void add(AddressRange range);
  // Throws std::out_of_range when no live range begins there.
  void remove(std::uintptr_t begin, const char* by = current_owner());

  // The live range that holds `address`.
  std::optional<AddressRange> find(std::uintptr_t address) const;

  // For messages. Knows the last 1024 ranges that were removed.
  Surroundings around(std::uintptr_t address) const;

  // All live ranges. What a kernel may know about when its launch starts is in a snapshot taken
  // then, so an engine that takes one per launch looks up without any lock. Never null.
  std::shared_ptr<const AddressRanges> snapshot() const;

  // Changes whenever a range is added or removed: an engine that cached a range across launches
  // compares it.
  std::uint64_t version() const noexcept;

 private:
  struct Live {
    std::uintptr_t end;
    const char* owner;
  };
  using Ranges = std::map<std::uintptr_t, Live>;  // by their beginnings
  static Allocation allocation(const Ranges::value_type& range) {
    return {{range.first, range.second.end}, range.second.owner};
  }

  mutable std::shared_mutex mutex_;
  Ranges ranges_;
  std::vector<Allocation> freed_;  // a ring
  std::size_t next_freed_ = 0;     // the oldest of a full ring
  std::atomic<std::uint64_t> version_ = 0;

  mutable std::mutex snapshot_mutex_;
  mutable std::shared_ptr<const AddressRanges> snapshot_;  // made when first asked for
  mutable std::uint64_t snapshot_version_ = 0;
};

}  // namespace ctxbroker::software
