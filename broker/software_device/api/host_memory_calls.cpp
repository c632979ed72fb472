// SPDX-License-Identifier: Apache-2.0
// Pinned and registered host memory. The device's address of it is the host's.
#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

CUresult allocate(void** pointer, std::size_t bytes, unsigned flags) {
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    constexpr unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    check_value(pointer != nullptr && (flags & ~known) == 0);
    *pointer = nullptr;
    if (bytes == 0) return;
    // NVIDIA's driver forgets that the memory was to be portable, because all of it is.
    const unsigned kept = (flags & ~unsigned(CU_MEMHOSTALLOC_PORTABLE)) | CU_MEMHOSTALLOC_DEVICEMAP;
    auto block = Process::instance().memory.allocate(Block::Kind::pinned, context, bytes, kept);
    *pointer = reinterpret_cast<void*>(block->begin);  // NOLINT(performance-no-int-to-ptr)
  });
}

CUresult register_memory(void* pointer, std::size_t bytes, unsigned flags) {
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    constexpr unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    check_value((flags & ~known) == 0);
    Process::instance().memory.add_registered(context, address_of(pointer), bytes,
                                              flags | CU_MEMHOSTREGISTER_DEVICEMAP);
  });
}

// Host memory that holds the address; CUDA_ERROR_INVALID_VALUE.
std::shared_ptr<Block> host_block(const void* pointer) {
  std::shared_ptr<Block> block = Process::instance().memory.find(address_of(pointer));
  check_value(block != nullptr && !block->on_device());
  return block;
}

void remove_after_its_work(const Block& block) {
  Executor& executor = block.device.executor;
  executor.wait(executor.pending_of_family(block.context));
  check_value(Process::instance().memory.remove(block));
}

}  // namespace

CTXB_EXPORT CUresult cuMemAllocHost(void** pointer, unsigned int bytes) {
  CTXB_COUNT_CALL();
  return allocate(pointer, bytes, 0);
}
CTXB_EXPORT CUresult cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return allocate(pointer, bytes, 0);
}
CTXB_EXPORT CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned int flags) {
  CTXB_COUNT_CALL();
  return allocate(pointer, bytes, flags);
}

CTXB_EXPORT CUresult cuMemFreeHost(void* pointer) {
  CTXB_COUNT_CALL();
  return working([&] {
    refuse_unsafe();
    if (pointer == nullptr) return;
    std::shared_ptr<Block> block = host_block(pointer);
    check_value(block->kind == Block::Kind::pinned && block->begin == address_of(pointer));
    remove_after_its_work(*block);
  });
}

CTXB_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer,
                                                  unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    check_value(address != nullptr && flags == 0);
    const std::shared_ptr<Block> block = host_block(pointer);
    // NVIDIA's driver gives the beginning of mapped host memory, wherever the pointer is in it.
    *address = block->kind == Block::Kind::mapped_host ? block->begin : address_of(pointer);
  });
}

CTXB_EXPORT CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(flags != nullptr);
    *flags = host_block(pointer)->host_flags;
  });
}

CTXB_EXPORT CUresult cuMemHostRegister(void* pointer, std::size_t bytes, unsigned int flags) {
  CTXB_COUNT_CALL();
  return register_memory(pointer, bytes, flags);
}
CTXB_EXPORT CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned int flags) {
  CTXB_COUNT_CALL();
  return register_memory(pointer, bytes, flags);
}

CTXB_EXPORT CUresult cuMemHostUnregister(void* pointer) {
  CTXB_COUNT_CALL();
  return working([&] {
    refuse_unsafe();
    check_value(pointer != nullptr);
    std::shared_ptr<Block> block = Process::instance().memory.find(address_of(pointer));
    check_that(block != nullptr, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    check_value(block->kind == Block::Kind::registered && block->begin == address_of(pointer));
    remove_after_its_work(*block);
  });
}
