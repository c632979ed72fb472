// SPDX-License-Identifier: Apache-2.0
// Finds the lent block that a buffer lies in, without the lock of the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ctxbroker::detail {

struct LentBlock;

// The bytes may belong to another object than the address.
inline bool is_within(const void* address, const std::byte* begin, std::uint64_t bytes) noexcept {
  const std::less<const std::byte*> before;
  const auto* const at = static_cast<const std::byte*>(address);
  return !before(at, begin) && before(at, begin + bytes);
}

// The blocks that were lent to a worker at one moment, except for the library's own.
struct LentBlocks {
  struct Block {
    const std::byte* begin;
    std::uint64_t bytes;
    std::weak_ptr<LentBlock> block;
  };
  std::uint64_t changes = UINT64_MAX;  // of the list in the worker until then. This one: no list
  std::vector<Block> all;

  // Returns the block that this address lies in, or null.
  std::shared_ptr<LentBlock> find(const void* address) const noexcept {
    for (const Block& one : all) {
      if (is_within(address, one.begin, one.bytes)) return one.block.lock();
    }
    return nullptr;
  }
};

}  // namespace ctxbroker::detail
