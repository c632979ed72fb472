// SPDX-License-Identifier: Apache-2.0
// cuMemPool*, cuDevice*MemPool, and the stream-ordered allocations.
#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/graph_memory.hpp"
#include "api/memory_pool.hpp"

using namespace ctxbroker::software;

namespace {

void check_location(const CUmemLocation& location) {
  check_value(location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  find_device(location.id);
}

void set_pool(Device& device, CUmemoryPool pool) {
  std::shared_ptr<MemoryPool> chosen = find_pool(pool);
  check_value(&chosen->device == &device);
  device.set_current_pool(chosen);
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    check_value(address != nullptr && bytes != 0);
    std::shared_ptr<MemoryPool> from =
        pool != nullptr ? find_pool(pool) : found->context.device.current_pool();
    // In a capture it is the graph's, and takes no more than the place from the pool.
    if (capture_operation(*found, [&] {
          Operation operation = allocation(from->device, bytes);
          *address = operation.memory->address();
          return operation;
        }))
      return;
    *address = from->allocate(bytes)->begin;
  });
}

CUresult allocate_from(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                       CUstream stream) {
  return initialised([&] {
    find_pool(pool);
    return allocate(address, bytes, pool, stream);
  });
}

// Frees when the stream comes to it. Takes memory of cuMemAlloc too.
CUresult free_in_order(CUdeviceptr address, CUstream stream) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    if (capture_operation(*found, [&] { return freeing(address); }) || address == 0) return;
    std::shared_ptr<Block> block = Process::instance().memory.find(address);
    if (block != nullptr && block->begin == address && block->kind == Block::Kind::graph)
      return free_graph_memory(*block);
    check_value(block != nullptr && block->begin == address &&
                (block->kind == Block::Kind::pooled || block->kind == Block::Kind::device));
    check_value(!block->freed.exchange(true));
    auto command = std::make_shared<Command>();
    command->kind = Command::Kind::transfer;
    command->work = [block, by = current_owner()] {
      Process::instance().memory.remove(*block, by);
      return CUDA_SUCCESS;
    };
    try {
      enqueue(found, command);
    } catch (...) {
      block->freed = false;
      throw;
    }
  });
}

}  // namespace

CTXB_EXPORT_PTSZ(cuMemAllocAsync, (CUdeviceptr * address, std::size_t bytes, CUstream stream),
                 allocate(address, bytes, nullptr, stream))
CTXB_EXPORT_PTSZ(cuMemAllocFromPoolAsync,
                 (CUdeviceptr * address, std::size_t bytes, CUmemoryPool pool, CUstream stream),
                 allocate_from(address, bytes, pool, stream))
CTXB_EXPORT_PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream stream),
                 free_in_order(address, stream))

CTXB_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(pool != nullptr && properties != nullptr);
    refuse_unsafe();
    check_value(properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    check_location(properties->location);
    check_that(properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    Device& device = find_device(properties->location.id);
    *pool = Process::instance().pools.insert(
        std::make_shared<MemoryPool>(device, properties->maxSize), [] {});
  });
}

// Allocations from the pool stay valid. The pool's memory is given back when the last of them is
// freed.
CTXB_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<MemoryPool> found = find_pool(pool);
    check_value(found != found->device.default_pool());
    found->device.forget_pool(*found);
    Process::instance().pools.take(pool);
    found->keep_nothing();  // what still holds freed memory may outlast it
  });
}

CTXB_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return working([&] { find_pool(pool)->trim_to(bytes); });
}

CTXB_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                           void* value) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<MemoryPool> found = find_pool(pool);
    check_value(value != nullptr);
    found->set(attribute, value);
  });
}

CTXB_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                           void* value) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<MemoryPool> found = find_pool(pool);
    check_value(value != nullptr);
    found->get(attribute, value);
  });
}

CTXB_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map,
                                        std::size_t count) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<MemoryPool> found = find_pool(pool);
    check_value(map != nullptr && count != 0);
    for (std::size_t i = 0; i < count; ++i) {
      check_location(map[i].location);
      found->set_access(map[i].location.id, map[i].flags);
    }
  });
}

CTXB_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool,
                                        CUmemLocation* location) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<MemoryPool> found = find_pool(pool);
    check_value(flags != nullptr && location != nullptr);
    check_location(*location);
    *flags = found->access(location->id);
  });
}

CTXB_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Device& found = find_device(device);
    check_value(pool != nullptr);
    *pool = found.default_pool()->handle;
  });
}

CTXB_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Device& found = find_device(device);
    check_value(pool != nullptr);
    *pool = found.current_pool()->handle;
  });
}

CTXB_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Device& found = find_device(device);
    set_pool(found, pool);
  });
}

// The same by place and kind. Device memory that is allocated as ever is all there is here.
#if CUDA_VERSION >= 13000
namespace {

Device& device_of(const CUmemLocation* location, CUmemAllocationType type) {
  check_value(location != nullptr);
  check_value(type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED);
  check_value(location->type != CU_MEM_LOCATION_TYPE_INVALID);
  check_that(type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
             CUDA_ERROR_NOT_SUPPORTED);
  return find_device(location->id);
}

}  // namespace

CTXB_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                            CUmemAllocationType type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Device& device = device_of(location, type);
    check_value(pool != nullptr);
    *pool = device.default_pool()->handle;
  });
}

CTXB_EXPORT CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                     CUmemAllocationType type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Device& device = device_of(location, type);
    check_value(pool != nullptr);
    *pool = device.current_pool()->handle;
  });
}

CTXB_EXPORT CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                     CUmemoryPool pool) {
  CTXB_COUNT_CALL();
  return initialised([&] { set_pool(device_of(location, type), pool); });
}
#endif
