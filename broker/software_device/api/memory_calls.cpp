// SPDX-License-Identifier: Apache-2.0
// Device memory: cuMemAlloc, cuMemFree and what is asked about them.
#include <algorithm>
#include <climits>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/graph_memory.hpp"

using namespace ctxbroker::software;

namespace {

CUresult get_info(std::size_t* free, std::size_t* total) {
  return initialised([&] {
    const Device& device = working_context().device;
    if (free != nullptr) *free = device.settings.memory - device.used;
    if (total != nullptr) *total = device.settings.memory;
  });
}

}  // namespace

CTXB_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    check_value(address != nullptr && bytes != 0);
    *address = Process::instance().memory.allocate(Block::Kind::device, context, bytes, 0)->begin;
  });
}

CTXB_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width,
                                        std::size_t height, unsigned int element_bytes) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    check_value(address != nullptr && pitch != nullptr && width != 0 && height != 0);
    check_value(element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    constexpr std::size_t unit = device_limits::alignment;
    std::size_t row = 0, bytes = 0;
    check_that(!__builtin_add_overflow(width, unit - 1, &row), CUDA_ERROR_OUT_OF_MEMORY);
    row = row / unit * unit;
    check_that(!__builtin_mul_overflow(row, height, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
    *address = Process::instance().memory.allocate(Block::Kind::device, context, bytes, 0)->begin;
    *pitch = row;
  });
}

CTXB_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes,
                                       unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    check_value(address != nullptr && bytes != 0);
    check_value(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    *address = Process::instance().memory.allocate(Block::Kind::managed, context, bytes, 0)->begin;
  });
}

// Works whatever context is current, and waits for the work of the context that owns the memory,
// that of its green contexts included. What a pool owns goes without waiting.
CTXB_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    if (context_stack::top() != nullptr) living_context(nullptr);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    refuse_unsafe();
    if (address == 0) return;
    MemoryRegistry& memory = Process::instance().memory;
    std::shared_ptr<Block> block = memory.find(address);
    check_value(block != nullptr && block->begin == address);
    if (block->kind == Block::Kind::graph) {
      block->device.executor.wait(block->device.executor.pending_everywhere());
      return free_graph_memory(*block);
    }
    check_value(block->kind == Block::Kind::device || block->kind == Block::Kind::managed ||
                block->kind == Block::Kind::pooled);
    check_value(!block->freed);
    Executor& executor = block->device.executor;
    if (block->context != nullptr) executor.wait(executor.pending_of_family(block->context));
    check_value(memory.remove(*block));
  });
}

CTXB_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  CTXB_COUNT_CALL();
  return get_info(free, total);
}

CTXB_EXPORT CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  CTXB_COUNT_CALL();
  std::size_t free_bytes = 0, total_bytes = 0;
  CUresult status = get_info(&free_bytes, &total_bytes);
  if (status != CUDA_SUCCESS) return status;
  if (free != nullptr) *free = static_cast<unsigned>(std::min<std::size_t>(free_bytes, UINT_MAX));
  if (total != nullptr)
    *total = static_cast<unsigned>(std::min<std::size_t>(total_bytes, UINT_MAX));
  return CUDA_SUCCESS;
}

CTXB_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* bytes,
                                             CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    std::shared_ptr<Block> block = Process::instance().memory.find(address);
    check_that(block != nullptr, CUDA_ERROR_NOT_FOUND);
    if (begin != nullptr) *begin = block->begin;
    if (bytes != nullptr) *bytes = block->size;
  });
}
