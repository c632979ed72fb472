// SPDX-License-Identifier: Apache-2.0
#include "exec/device_heap.hpp"

#include <cstring>
#include <iterator>

#include "exec/engine.hpp"

namespace ctxbroker::software::exec {
namespace {

constexpr std::uint64_t step = 16, beside_each = 16;
constexpr int undefined_byte = 0xCD;

}  // namespace

DeviceHeap::DeviceHeap(std::byte* memory, std::size_t bytes) {
  free_[reinterpret_cast<std::uintptr_t>(memory)] = bytes / step * step;
}

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) {
  if (bytes > (std::uint64_t{1} << 60)) return 0;
  const std::uint64_t needed = (bytes + beside_each + step - 1) / step * step;
  std::uint64_t address = 0;
  {
    const std::lock_guard lock(mutex_);
    auto found = free_.begin();
    while (found != free_.end() && found->second < needed) ++found;
    if (found == free_.end()) return 0;
    address = found->first;
    const std::uint64_t left = found->second - needed;
    // Enter first: where the host has no memory for that, nothing has changed.
    const auto entered = used_.emplace(address, needed).first;
    try {
      if (left != 0) free_.emplace(address + needed, left);
    } catch (...) {
      used_.erase(entered);
      throw;
    }
    free_.erase(found);
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
  std::memset(reinterpret_cast<void*>(address), undefined_byte, bytes);
  return address;
}

bool DeviceHeap::release(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  auto freed = free_.emplace(address, found->second).first;
  used_.erase(found);
  const auto join_next = [&](auto one) {
    const auto next = std::next(one);
    if (next == free_.end() || one->first + one->second != next->first) return;
    one->second += next->second;
    free_.erase(next);
  };
  join_next(freed);
  if (freed != free_.begin()) join_next(std::prev(freed));
  return true;
}

std::uint64_t allocate_on_heap(const Group& group, std::uint64_t bytes) {
  DeviceHeap* const heap = group.block->heap;
  try {
    return heap == nullptr ? 0 : heap->allocate(bytes);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

bool free_on_heap(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t address) {
  if (address == 0) return true;
  DeviceHeap* const heap = group.block->heap;
  try {
    if (heap != nullptr && heap->release(address)) return true;
  } catch (const std::bad_alloc&) {
    return true;  // the block stays
  }
  const bool aligned = address % 8 == 0;
  record_fault(group, in, lane, aligned ? Fault::bad_free : Fault::misaligned_address, address, 8);
  return false;
}

}  // namespace ctxbroker::software::exec
