// SPDX-License-Identifier: Apache-2.0
#include "memory/memory_map.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "memory/owner.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::size_t most_freed = 1024;

std::string hex(std::uintptr_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

}  // namespace

std::optional<AddressRange> find_range(const AddressRanges& ranges,
                                       std::uintptr_t address) noexcept {
  auto after = std::upper_bound(
      ranges.begin(), ranges.end(), address,
      [](std::uintptr_t wanted, const AddressRange& range) { return wanted < range.begin; });
  if (after == ranges.begin()) return std::nullopt;
  const AddressRange& candidate = *(after - 1);
  if (address >= candidate.end) return std::nullopt;
  return candidate;
}

void MemoryMap::add(AddressRange range) {
  if (range.end <= range.begin)
    throw std::invalid_argument("memory map: the range at " + hex(range.begin) + " is empty");
  std::unique_lock lock(mutex_);
  auto next = ranges_.lower_bound(range.begin);
  bool overlaps_next = next != ranges_.end() && next->first < range.end;
  bool overlaps_previous = next != ranges_.begin() && std::prev(next)->second.end > range.begin;
  if (overlaps_next || overlaps_previous)
    throw std::invalid_argument("memory map: the range at " + hex(range.begin) +
                                " overlaps a live allocation");
  ranges_.emplace_hint(next, range.begin, Live{range.end, current_owner()});
  version_.fetch_add(1, std::memory_order_release);
}

void MemoryMap::remove(std::uintptr_t begin, const char* by) {
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end())
    throw std::out_of_range("memory map: no live allocation begins at " + hex(begin));
  Allocation freed = allocation(*found);
  freed.freed_by = by;
  ranges_.erase(found);
  if (freed_.size() < most_freed) {
    freed_.push_back(freed);
  } else {
    freed_[next_freed_] = freed;
    next_freed_ = (next_freed_ + 1) % most_freed;
  }
  version_.fetch_add(1, std::memory_order_release);
}

std::optional<AddressRange> MemoryMap::find(std::uintptr_t address) const {
  std::shared_lock lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  auto candidate = std::prev(after);
  if (address >= candidate->second.end) return std::nullopt;
  return AddressRange{candidate->first, candidate->second.end};
}

Surroundings MemoryMap::around(std::uintptr_t address) const {
  std::shared_lock lock(mutex_);
  Surroundings found;
  for (std::size_t age = 0; age < freed_.size(); ++age) {
    const std::size_t newest = next_freed_ + freed_.size() - 1;
    const Allocation& one = freed_[(newest - age) % freed_.size()];
    if (address < one.range.begin || address >= one.range.end) continue;
    found.freed = one;
    break;
  }
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.end()) found.above = allocation(*after);
  if (after != ranges_.begin()) found.below = allocation(*std::prev(after));
  return found;
}

std::shared_ptr<const AddressRanges> MemoryMap::snapshot() const {
  std::lock_guard making(snapshot_mutex_);
  if (snapshot_ && snapshot_version_ == version()) return snapshot_;
  std::shared_lock lock(mutex_);
  auto fresh = std::make_shared<AddressRanges>();
  fresh->reserve(ranges_.size());
  for (const auto& [begin, live] : ranges_) fresh->push_back({begin, live.end});
  snapshot_version_ = version();
  snapshot_ = std::move(fresh);
  return snapshot_;
}

std::uint64_t MemoryMap::version() const noexcept {
  return version_.load(std::memory_order_acquire);
}

}  // namespace ctxbroker::software
