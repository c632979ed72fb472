// SPDX-License-Identifier: Apache-2.0
// What kernels allocate with malloc: one piece of memory per context, in which all of its kernels
// find each other's blocks until they free them or the context ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace ctxbroker::software::exec {

// Thread-safe. First fit, in steps of 16 bytes, with what a GPU keeps beside each block.
class DeviceHeap {
 public:
  // The memory is the caller's, aligned to 16, and outlives the heap.
  DeviceHeap(std::byte* memory, std::size_t bytes);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // The address of a new block, filled with a pattern that is not zero; 0 if there is no room.
  // Of no bytes is a block too.
  std::uint64_t allocate(std::uint64_t bytes);
  // False for what is not the beginning of a block, or of one that was freed already.
  bool release(std::uint64_t address);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_, used_;  // address: bytes, with the record beside it
};

}  // namespace ctxbroker::software::exec
