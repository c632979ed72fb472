// SPDX-License-Identifier: Apache-2.0
// What cuPointerGetAttribute tells of an address.
#include <cstring>
#include <mutex>
#include <optional>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/memory_pool.hpp"
#include "api/virtual_memory.hpp"

using namespace ctxbroker::software;

namespace {

template <class Value>
CUresult give(void* target, Value value) {
  std::memcpy(target, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): handles too
  return CUDA_SUCCESS;
}

// What the driver knows of an address: memory, or a reserved range, or both.
struct Pointed {
  CUdeviceptr address;
  std::shared_ptr<Block> block;
  std::optional<VirtualMemory::Place> place;

  bool any() const { return block != nullptr || place.has_value(); }
  // Mapped memory that is not accessible is no block.
  bool mapped() const { return block != nullptr || place->mapping_bytes != 0; }
  Device& device() const { return block != nullptr ? block->device : *place->device; }
};

Pointed look_at(CUdeviceptr address) {
  Process& process = Process::instance();
  return {address, process.memory.find(address), process.virtual_memory.place(address)};
}

// Of the current context's device.
unsigned access_flags(const Pointed& found) {
  Context& current = living_context(nullptr).owner;
  const CUdevice ordinal = current.device.ordinal;
  if (found.place.has_value()) {
    check_value(found.mapped());
    return Process::instance().virtual_memory.access(found.address, ordinal);
  }
  const Block& block = *found.block;
  if (!block.on_device())
    return (block.host_flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 &&
                   block.kind == Block::Kind::registered
               ? CU_MEM_ACCESS_FLAGS_PROT_READ
               : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (CUmemoryPool pool = pool_of(block)) return find_pool(pool)->access(ordinal);
  if (&block.device == &current.device || block.on_host())
    return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::lock_guard lock(current.peers_mutex);
  return current.peers.count(block.context) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult attribute_of(const Pointed& found, CUpointer_attribute attribute, void* target) {
  const Block* const block = found.block.get();
  const VirtualMemory::Place* const place = found.place.has_value() ? &*found.place : nullptr;
  // Nothing is told of a reserved range where nothing is mapped.
  if (!found.any() || !found.mapped()) return CUDA_ERROR_INVALID_VALUE;
  Device& device = found.device();
  const bool on_host = block != nullptr && block->on_host();
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give<CUdeviceptr>(target, place != nullptr ? place->begin : block->begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give<std::size_t>(target, place != nullptr ? place->bytes : block->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give<unsigned>(target, 1);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Null for what belongs to no context.
      return give<CUcontext>(
          target, block == nullptr || block->context == nullptr ? nullptr : block->context->handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(target, block != nullptr && !block->on_device() ? CU_MEMORYTYPE_HOST
                                                                            : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(target, found.address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (on_host) return give(target, found.address);
      give<void*>(target, nullptr);
      return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give<unsigned long long>(target, place != nullptr ? place->memory : block->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give<unsigned>(target, block != nullptr && block->kind == Block::Kind::managed);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give<unsigned>(target, block != nullptr && block->kind == Block::Kind::device);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give<unsigned>(target, block != nullptr && block->sync_memops);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(target, device.ordinal);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(target, block == nullptr ? nullptr : pool_of(*block));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give<unsigned long long>(target, place != nullptr ? place->handle_types : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give<unsigned>(target, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give<unsigned>(target, access_flags(found));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give<std::size_t>(target, place != nullptr ? place->mapping_bytes : block->size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give<CUdeviceptr>(target, place != nullptr ? place->mapping_begin : block->begin);
#if CUDA_VERSION >= 12080
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give<unsigned>(target, 0);
#endif
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;  // of a kernel interface
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes writes for an address that the driver does not know.
CUresult attribute_of_stranger(CUpointer_attribute attribute, void* target) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give<std::uint64_t>(target, 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
#if CUDA_VERSION >= 12080
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
#endif
      return give<unsigned>(target, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(target, -2);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CTXB_EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                           CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(value != nullptr);
    return attribute_of(look_at(address), attribute, value);
  });
}

CTXB_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                            void** values, CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(count > 0 && attributes != nullptr && values != nullptr);
    const Pointed found = look_at(address);
    for (unsigned i = 0; i < count; ++i) {
      check_value(values[i] != nullptr);
      CUresult status = found.any() && found.mapped()
                            ? attribute_of(found, attributes[i], values[i])
                            : attribute_of_stranger(attributes[i], values[i]);
      bool no_host_address = found.any() && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
      check_that(status == CUDA_SUCCESS || no_host_address, status);
    }
  });
}

// One can be set. Setting it waits for what synchronous calls have left to be done.
CTXB_EXPORT CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                           CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    const std::shared_ptr<Block> block = Process::instance().memory.find(address);
    check_value(block != nullptr && block->on_device());
    unsigned set = 0;
    std::memcpy(&set, value, sizeof set);
    block->sync_memops = set != 0;
    Executor& executor = block->device.executor;
    if (set != 0) executor.wait(executor.pending_everywhere());
  });
}
