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

namespace ctxbroker::software {

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;  // end is one past the last byte

  bool operator==(const AddressRange&) const = default;
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
  void remove(std::uintptr_t begin);

  // The live range that holds `address`.
  std::optional<AddressRange> find(std::uintptr_t address) const;

  // All live ranges. What a kernel may know about when its launch starts is in a snapshot taken
  // then, so an engine that takes one per launch looks up without any lock. Never null.
  std::shared_ptr<const AddressRanges> snapshot() const;

  // Changes whenever a range is added or removed: an engine that cached a range across launches
  // compares it.
  std::uint64_t version() const noexcept;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // begin -> end
  std::atomic<std::uint64_t> version_ = 0;

  mutable std::mutex snapshot_mutex_;
  mutable std::shared_ptr<const AddressRanges> snapshot_;  // made when first asked for
  mutable std::uint64_t snapshot_version_ = 0;
};

}  // namespace ctxbroker::software
