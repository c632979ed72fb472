// SPDX-License-Identifier: Apache-2.0
#include "context/device_pool.hpp"

#include <limits>
#include <new>

#include "context/hung_work.hpp"
#include "context/timed_wait.hpp"

namespace ctxbroker::detail {
namespace {

bool has_pools(const DriverTable& driver) noexcept {
  return driver.pool_create != nullptr && driver.pool_destroy != nullptr &&
         driver.pool_set_attribute != nullptr && driver.pool_get_attribute != nullptr &&
         driver.pool_set_access != nullptr && driver.pool_trim != nullptr &&
         driver.mem_alloc_from_pool != nullptr && driver.mem_free_async != nullptr &&
         driver.mem_alloc_pitch != nullptr && driver.pointer_get_attribute != nullptr;
}

CUresult set_threshold(const DriverTable& driver, CUmemoryPool pool, cuuint64_t bytes) noexcept {
  return driver.pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

// Makes the pool keep freed memory. The pool does not make its stream wait for another stream: a
// tenant can free memory in the order of its own stream, and the work of that stream may hang.
CUresult set_up(const DriverTable& driver, CUmemoryPool pool) noexcept {
  int no = 0;
  const CUresult status = set_threshold(driver, pool, std::numeric_limits<cuuint64_t>::max());
  return status == CUDA_SUCCESS ? driver.pool_set_attribute(
                                      pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no)
                                : status;
}

}  // namespace

// HungWork makes it, because the driver creates no stream while it loads a module and waits there.
std::shared_ptr<MemoryPool> DevicePool::make(const DriverTable& driver, CUcontext primary,
                                             CUdevice device, HungWork& family,
                                             const char* owner) noexcept {
  if (!has_pools(driver)) return nullptr;
  try {
    std::shared_ptr<DevicePool> made(new DevicePool(driver, primary, device));
    MakeRequest request;
    request.owner = owner;
    request.is_light = true;
    request.perform = [made, primary] {
      return call_in(made->driver_, primary, [&] { return made->open(); });
    };
    request.undo = [made] { made->end(); };
    return family.make(std::move(request)) == CUDA_SUCCESS ? made : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

CUresult DevicePool::open() noexcept {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  CUresult status = driver_.pool_create(&pool_, &properties);
  if (status != CUDA_SUCCESS) return status;
  status = set_up(driver_, pool_);
  if (status == CUDA_SUCCESS) status = driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING);
  if (status != CUDA_SUCCESS) driver_.pool_destroy(pool_);
  return status;
}

// Frees once more what the driver has refused to free. All owners of memory have given it back.
CUresult DevicePool::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(taken_, [this](CUdeviceptr one) {
      return !is_of_this_pool(one) || driver_.mem_free_async(one, stream_) == CUDA_SUCCESS;
    });
  }
  driver_.stream_synchronize(stream_);
  const CUresult status = driver_.pool_destroy(pool_);
  if (status == CUDA_SUCCESS) driver_.stream_destroy(stream_);
  return status;
}

// The context may have been made again since, with the same handle. The stream tells.
bool DevicePool::is_lost() noexcept {
  const CUresult status = driver_.stream_query(stream_);
  return status == CUDA_ERROR_CONTEXT_IS_DESTROYED || status == CUDA_ERROR_INVALID_CONTEXT ||
         status == CUDA_ERROR_INVALID_HANDLE;
}

// A tenant can free memory in the order of its own stream, and others may have the address now.
bool DevicePool::is_of_this_pool(CUdeviceptr address) const noexcept {
  CUmemoryPool pool = nullptr;
  const CUresult status =
      driver_.pointer_get_attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
  return status == CUDA_SUCCESS && pool == pool_;
}

// The pool's stream was destroyed with the context, so this frees without a stream. That needs a
// context: the new primary, which has the old one's handle. If there is none, one is made for it.
void DevicePool::end_without_context() noexcept {
  const std::lock_guard lock(mutex_);
  const auto free_all = [&] {
    std::erase_if(taken_, [&](CUdeviceptr one) {
      return is_of_this_pool(one) && driver_.mem_free(one) == CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  };
  if (!taken_.empty()) call_in(driver_, primary_, free_all);
  CUcontext made = nullptr;
  if (!taken_.empty() && driver_.primary_retain(&made, device_) == CUDA_SUCCESS) {
    call_in(driver_, made, free_all);
    driver_.primary_release(device_);
  }
  driver_.pool_destroy(pool_);
}

CUresult DevicePool::allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept {
  CUresult status = driver_.mem_alloc_from_pool(out, bytes, pool_, stream_);
  if (status != CUDA_SUCCESS) return status;
  status = driver_.stream_synchronize(stream_);
  try {
    const std::lock_guard lock(mutex_);
    taken_.insert(*out);
  } catch (const std::bad_alloc&) {
    status = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (status != CUDA_SUCCESS) free(*out);
  return status;
}

// Lets the driver allocate a row of one byte, because no attribute of a device is documented to be
// the unit. The free of the row is in the order of a stream, so it waits for no neighbour.
CUresult DevicePool::find_pitch_unit(std::uint64_t* unit) noexcept {
  *unit = pitch_unit_.load(std::memory_order_relaxed);
  if (*unit != 0) return CUDA_SUCCESS;
  CUdeviceptr shown = 0;
  std::size_t pitch = 0;
  constexpr unsigned int least_element = 4;
  const CUresult status = driver_.mem_alloc_pitch(&shown, &pitch, 1, 1, least_element);
  if (status != CUDA_SUCCESS) return status;
  if (free(shown) != CUDA_SUCCESS) driver_.mem_free(shown);
  *unit = pitch;
  pitch_unit_.store(pitch, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult DevicePool::free(CUdeviceptr address) noexcept {
  const std::lock_guard lock(mutex_);
  ++frees_;
  const CUresult status = driver_.mem_free_async(address, stream_);
  if (status == CUDA_SUCCESS) taken_.erase(address);
  return status;
}

CUresult DevicePool::open_to(CUdevice other) noexcept {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {other}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver_.pool_set_access(pool_, &access, 1);
}

std::uint64_t DevicePool::bytes(CUmemPool_attribute which) const noexcept {
  cuuint64_t bytes = 0;
  return driver_.pool_get_attribute(pool_, which, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

// The pool counts a free only when its stream has come to it, so this first looks at the stream.
std::uint64_t DevicePool::unused() noexcept {
  wait_for(driver_, stream_, std::chrono::nanoseconds(0));
  const std::uint64_t all = bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  const std::uint64_t used = bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  return all > used ? all - used : 0;
}

bool DevicePool::keeps_unused() noexcept {
  return bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) != bytes(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

std::uint64_t DevicePool::frees() noexcept {
  const std::lock_guard lock(mutex_);
  return frees_;
}

bool DevicePool::trim(std::uint64_t frees) noexcept {
  const std::lock_guard lock(mutex_);
  if (frees != frees_) return false;
  const std::uint64_t before = bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  driver_.pool_trim(pool_, 0);
  return bytes(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < before;
}

void DevicePool::keep_nothing() noexcept {
  set_threshold(driver_, pool_, 0);
}

}  // namespace ctxbroker::detail
