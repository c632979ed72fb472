// What cuPointerGetAttribute tells of an address.
#include <cstring>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

template <class Value>
CUresult give(void* target, Value value) {
  std::memcpy(target, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): handles too
  return CUDA_SUCCESS;
}

CUresult attribute_of(const Block* block, CUdeviceptr address, CUpointer_attribute attribute,
                      void* target) {
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Null for what belongs to no context.
      return give<CUcontext>(target, block->context == nullptr ? nullptr : block->context->handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(target, block->on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(target, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (block->on_host()) return give(target, address);
      give<void*>(target, nullptr);
      return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give<unsigned long long>(target, block->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give<unsigned>(target, block->kind == Block::Kind::managed);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give<unsigned>(target, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(target, block->device.ordinal);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(target, pool_of(*block));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give<CUdeviceptr>(target, block->begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give<std::size_t>(target, block->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give<unsigned>(target, 1);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes writes for an address that the driver does not know.
CUresult attribute_of_stranger(CUpointer_attribute attribute, void* target) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give<std::uint64_t>(target, 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_MAPPED:
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
    require_value(value != nullptr);
    std::shared_ptr<Block> block = Process::instance().memory.find(address);
    return attribute_of(block.get(), address, attribute, value);
  });
}

CTXB_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                            void** values, CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    require_value(count > 0 && attributes != nullptr && values != nullptr);
    std::shared_ptr<Block> block = Process::instance().memory.find(address);
    for (unsigned i = 0; i < count; ++i) {
      require_value(values[i] != nullptr);
      CUresult status = block == nullptr
                            ? attribute_of_stranger(attributes[i], values[i])
                            : attribute_of(block.get(), address, attributes[i], values[i]);
      bool no_host_address = block != nullptr && !block->on_host() &&
                             attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
      require_value(status == CUDA_SUCCESS || no_host_address);
    }
  });
}
