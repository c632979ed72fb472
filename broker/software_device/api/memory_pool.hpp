// SPDX-License-Identifier: Apache-2.0
// Pools of the stream-ordered allocator. A pool belongs to a device, not to a context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class Device;
struct Block;

// What the pool holds in reserve is charged to the device. What is freed stays reserved up to the
// release threshold; more goes back at once, where NVIDIA's driver waits for the next synchronise.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // `most`: bytes it may hold, 0: as many as the device has.
  MemoryPool(Device& of, std::size_t most);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // New memory; CUDA_ERROR_OUT_OF_MEMORY.
  std::shared_ptr<Block> allocate(std::size_t bytes);
  void trim_to(std::size_t bytes);
  // Gives back what is unused now, and from now on what is freed.
  void keep_nothing();

  // Reads or writes *value, an int or a cuuint64_t; CUDA_ERROR_INVALID_VALUE.
  void get(CUmemPool_attribute which, void* value);
  void set(CUmemPool_attribute which, const void* value);

  // Which devices may use its memory; its own always may. All share one memory: only a record.
  void set_access(CUdevice device, CUmemAccess_flags flags);
  CUmemAccess_flags access(CUdevice device);

  Device& device;
  CUmemoryPool handle = nullptr;

 private:
  friend CUmemoryPool pool_of(const Block& block);
  struct Share;
  void take(std::size_t bytes);
  void give_back(std::size_t bytes);
  void release_down_to(std::size_t bytes);  // with mutex_ held

  const std::size_t most_;
  std::mutex mutex_;
  std::size_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;  // bytes
  std::uint64_t threshold_ = 0;                                              // bytes
  std::array<int, 3> reuse_ = {1, 1, 1};   // the three rules; memory is never reused here
  std::vector<CUmemAccess_flags> access_;  // by device
};

// The pool that a block is of; null.
CUmemoryPool pool_of(const Block& block);

// The pool of a handle; CUDA_ERROR_INVALID_VALUE.
std::shared_ptr<MemoryPool> find_pool(CUmemoryPool handle);

}  // namespace ctxbroker::software
