// SPDX-License-Identifier: Apache-2.0
#include "api/memory_pool.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "api/device.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

template <class Value>
void write(void* target, Value value) {
  std::memcpy(target, &value, sizeof value);
}

template <class Value>
Value read(const void* source) {
  Value value{};
  std::memcpy(&value, source, sizeof value);
  return value;
}

}  // namespace

// A block's part of its pool.
struct MemoryPool::Share : BlockCharge {
  Share(std::shared_ptr<MemoryPool> of, std::size_t its_bytes)
      : pool(std::move(of)), bytes(its_bytes) {
    pool->take(bytes);
  }
  ~Share() override { Share::give_back(); }
  void give_back() noexcept override {
    if (!given_back.exchange(true)) pool->give_back(bytes);
  }

  const std::shared_ptr<MemoryPool> pool;
  const std::size_t bytes;
  std::atomic<bool> given_back = false;
};

MemoryPool::MemoryPool(Device& of, std::size_t most) : device(of), most_(most) {}

MemoryPool::~MemoryPool() {
  device.give_back(reserved_);
}

void MemoryPool::take(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  check_that(most_ == 0 || (bytes <= most_ && used_ <= most_ - bytes), CUDA_ERROR_OUT_OF_MEMORY);
  if (used_ + bytes > reserved_) {
    std::size_t more = used_ + bytes - reserved_;
    check_that(device.reserve(more), CUDA_ERROR_OUT_OF_MEMORY);
    reserved_ += more;
    reserved_high_ = std::max(reserved_high_, reserved_);
  }
  used_ += bytes;
  used_high_ = std::max(used_high_, used_);
}

void MemoryPool::give_back(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  if (reserved_ > threshold_) release_down_to(static_cast<std::size_t>(threshold_));
}

void MemoryPool::release_down_to(std::size_t bytes) {
  std::size_t target = std::max(used_, bytes);
  if (reserved_ <= target) return;
  device.give_back(reserved_ - target);
  reserved_ = target;
}

std::shared_ptr<Block> MemoryPool::allocate(std::size_t bytes) {
  constexpr std::size_t unit = device_limits::alignment;
  check_that(bytes <= SIZE_MAX - unit, CUDA_ERROR_OUT_OF_MEMORY);
  auto share = std::make_shared<Share>(shared_from_this(), (bytes + unit - 1) / unit * unit);
  return Process::instance().memory.allocate_charged(Block::Kind::pooled, device, bytes,
                                                     std::move(share));
}

void MemoryPool::trim_to(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  release_down_to(bytes);
}

void MemoryPool::keep_nothing() {
  std::lock_guard lock(mutex_);
  threshold_ = 0;
  release_down_to(0);
}

void MemoryPool::get(CUmemPool_attribute which, void* value) {
  std::lock_guard lock(mutex_);
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return write(value, reuse_[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return write<cuuint64_t>(value, threshold_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return write<cuuint64_t>(value, reserved_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return write<cuuint64_t>(value, reserved_high_);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return write<cuuint64_t>(value, used_);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return write<cuuint64_t>(value, used_high_);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void MemoryPool::set(CUmemPool_attribute which, const void* value) {
  std::lock_guard lock(mutex_);
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = read<int>(value) != 0;
      return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = read<cuuint64_t>(value);
      return;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      check_value(read<cuuint64_t>(value) == 0);
      reserved_high_ = reserved_;
      return;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      check_value(read<cuuint64_t>(value) == 0);
      used_high_ = used_;
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void MemoryPool::set_access(CUdevice accessing, CUmemAccess_flags flags) {
  check_value(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
              flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  find_device(accessing);
  check_value(accessing != device.ordinal || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  std::lock_guard lock(mutex_);
  access_.resize(Process::instance().devices.size(), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  access_[static_cast<std::size_t>(accessing)] = flags;
}

CUmemAccess_flags MemoryPool::access(CUdevice accessing) {
  find_device(accessing);
  if (accessing == device.ordinal) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  auto index = static_cast<std::size_t>(accessing);
  std::lock_guard lock(mutex_);
  return index < access_.size() ? access_[index] : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUmemoryPool pool_of(const Block& block) {
  if (block.kind != Block::Kind::pooled) return nullptr;
  return static_cast<const MemoryPool::Share&>(*block.charge).pool->handle;
}

std::shared_ptr<MemoryPool> find_pool(CUmemoryPool handle) {
  try {
    return Process::instance().pools.find(handle);
  } catch (const Failure&) {
    fail(CUDA_ERROR_INVALID_VALUE);  // what the pools' own calls say
  }
}

}  // namespace ctxbroker::software
