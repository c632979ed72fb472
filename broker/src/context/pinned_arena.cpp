// SPDX-License-Identifier: Apache-2.0
#include "context/pinned_arena.hpp"

#include <new>
#include <utility>

#include "context/open_captures.hpp"
#include "driver/host_location.hpp"

namespace ctxbroker::detail {

std::shared_ptr<MemoryPool> PinnedArena::make(const DriverTable& driver, CUdevice device,
                                              const std::vector<CUdevice>& devices,
                                              std::uint64_t ahead) noexcept {
  const auto location = find_host_location(driver, device);
  if (!location) return nullptr;
  try {
    std::shared_ptr<PinnedArena> made(new PinnedArena(driver));
    made->properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->properties_.location = *location;
    const auto usable_by = [&](const CUmemLocation& one) {
      made->access_.push_back({one, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    };
    usable_by(*location);
    for (const CUdevice one : devices) {
      if (!find_host_location(driver, one)) return nullptr;
      usable_by({CU_MEM_LOCATION_TYPE_DEVICE, {one}});
    }
    const CUresult status = driver.mem_get_allocation_granularity(&made->unit_, &made->properties_,
                                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (status != CUDA_SUCCESS || made->unit_ == 0) return nullptr;
    made->take_ahead(ahead);
    return made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// The mapping keeps the memory when its handle is released.
CUresult PinnedArena::map(std::uint64_t bytes, CUdeviceptr* out) const noexcept {
  const BesideCaptures beside(driver_);
  CUmemGenericAllocationHandle memory = 0;
  CUresult status = driver_.mem_create(&memory, bytes, &properties_, 0);
  if (status != CUDA_SUCCESS) return status;
  CUdeviceptr begin = 0;
  status = driver_.mem_address_reserve(&begin, bytes, 0, 0, 0);
  if (status == CUDA_SUCCESS) {
    status = driver_.mem_map(begin, bytes, 0, memory, 0);
    if (status == CUDA_SUCCESS) {
      status = driver_.mem_set_access(begin, bytes, access_.data(), access_.size());
      if (status != CUDA_SUCCESS) driver_.mem_unmap(begin, bytes);
    }
    if (status != CUDA_SUCCESS) driver_.mem_address_free(begin, bytes);
  }
  driver_.mem_release(memory);
  *out = begin;
  return status;
}

// Addresses that the driver does not unmap stay taken.
void PinnedArena::unmap(const Segments::Range& segment) const noexcept {
  const BesideCaptures beside(driver_);
  if (driver_.mem_unmap(segment.begin, segment.bytes) != CUDA_SUCCESS) return;
  driver_.mem_address_free(segment.begin, segment.bytes);
}

void PinnedArena::take_ahead(std::uint64_t bytes) {
  CUdeviceptr begin = 0;
  const std::uint64_t whole = bytes != 0 ? Segments::bytes_for(bytes, unit_) : 0;
  if (whole == 0 || map(whole, &begin) != CUDA_SUCCESS) return;
  try {
    segments_.add_lasting({begin, whole});
  } catch (...) {
    unmap({begin, whole});
    throw;
  }
}

CUresult PinnedArena::grow(CUdeviceptr* out, std::uint64_t bytes) noexcept {
  const std::uint64_t whole = Segments::bytes_for(bytes, unit_);
  if (whole == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr begin = 0;
  const CUresult status = map(whole, &begin);
  // The driver's cuMemHostAlloc has only one answer for a size that is too large.
  if (status == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_OUT_OF_MEMORY;
  if (status != CUDA_SUCCESS) return status;
  try {
    const std::lock_guard lock(mutex_);
    *out = segments_.add({begin, whole}, bytes);
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    unmap({begin, whole});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult PinnedArena::allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (const auto block = segments_.take(bytes)) {
      *out = *block;
      return CUDA_SUCCESS;
    }
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return grow(out, bytes);
}

CUresult PinnedArena::free(CUdeviceptr address) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (!segments_.give(address)) return CUDA_ERROR_INVALID_VALUE;
    ++frees_;
    if (keeps_nothing_) unmap_unused(std::move(lock));
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

std::uint64_t PinnedArena::unused() noexcept {
  const std::lock_guard lock(mutex_);
  return segments_.free_bytes();
}

bool PinnedArena::keeps_unused() noexcept {
  const std::lock_guard lock(mutex_);
  return segments_.has_unused();
}

std::uint64_t PinnedArena::frees() noexcept {
  const std::lock_guard lock(mutex_);
  return frees_;
}

// Takes the unused segments out under the lock, so that no allocation gets them, and unmaps them
// after it.
bool PinnedArena::unmap_unused(std::unique_lock<std::mutex> lock) noexcept {
  try {
    const std::vector<Segments::Range> unused = segments_.take_unused();
    lock.unlock();
    for (const Segments::Range& one : unused) unmap(one);
    return !unused.empty();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool PinnedArena::trim(std::uint64_t frees) noexcept {
  std::unique_lock lock(mutex_);
  return frees == frees_ && unmap_unused(std::move(lock));
}

void PinnedArena::keep_nothing() noexcept {
  std::unique_lock lock(mutex_);
  keeps_nothing_ = true;
  unmap_unused(std::move(lock));
}

CUresult PinnedArena::end() noexcept {
  try {
    std::unique_lock lock(mutex_);
    const std::vector<Segments::Range> all = segments_.take_all();
    lock.unlock();
    for (const Segments::Range& one : all) unmap(one);
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

}  // namespace ctxbroker::detail
