// Which addresses a kernel may touch: the software device's record of live allocations. Device
// addresses are host addresses (one address space, as with the real driver's unified addressing).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>

namespace ctxbroker::software {

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;  // end is one past the last byte
};

// Thread-safe. Readers are engines (a look-up per new range; engines cache the last ones), writers
// are allocations.
class MemoryMap {
 public:
  void add(AddressRange range);
  void remove(std::uintptr_t begin);

  // The live range that holds `address`.
  std::optional<AddressRange> find(std::uintptr_t address) const;

  // Changes whenever a range is added or removed: an engine that cached a range across launches
  // compares it.
  std::uint64_t version() const noexcept;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // begin -> end
  std::uint64_t version_ = 0;
};

}  // namespace ctxbroker::software
