// SPDX-License-Identifier: Apache-2.0
#include "fake_driver.hpp"

#include <cstdint>
#include <utility>

namespace ctxbroker::detail {
namespace {

FakeDriver books;

CUresult get_error_name(CUresult status, const char** text) {
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return *text = "CUDA_ERROR_OUT_OF_MEMORY", CUDA_SUCCESS;
  if (status == CUDA_ERROR_ILLEGAL_ADDRESS) {
    return *text = "CUDA_ERROR_ILLEGAL_ADDRESS", CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult get_error_string(CUresult status, const char** text) {
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return *text = "out of memory", CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult push(CUcontext context) {
  ++books.calls;
  if (books.push_status != CUDA_SUCCESS) return books.push_status;
  books.stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* context) {
  ++books.calls;
  if (books.stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = books.stack.back();
  books.stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult get_current(CUcontext* context) {
  ++books.calls;
  *context = books.stack.empty() ? nullptr : books.stack.back();
  return CUDA_SUCCESS;
}

CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  std::swap(*mode, books.capture_mode);
  return CUDA_SUCCESS;
}

CUresult ctx_create(CUcontext* context, unsigned int, CUdevice) {
  if (books.create_until.valid()) books.create_until.wait();
  *context = fake_context(100 + books.contexts_made++);  // never one that exists
  books.contexts.insert(*context);
  return push(*context);
}

CUresult ctx_destroy(CUcontext context) {
  if (books.destroy_until.valid()) books.destroy_until.wait();
  return books.contexts.erase(context) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult primary_retain(CUcontext* context, CUdevice) {
  if (books.create_until.valid()) books.create_until.wait();
  ++books.primary_retains;
  *context = fake_context(99);
  return CUDA_SUCCESS;
}

CUresult primary_release(CUdevice) {
  if (books.primary_retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --books.primary_retains;
  return CUDA_SUCCESS;
}

CUresult mem_get_info(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 30;
  *free = *total - books.contexts.size() * books.bytes_per_context -
          (books.contexts_made > 0 ? books.bytes_of_others : 0);
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* address, std::size_t bytes) {
  if (books.alloc_status != CUDA_SUCCESS) return books.alloc_status;
  static CUdeviceptr next = 0x1000;
  *address = next;
  next += bytes + 256;
  books.memory[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr address) {
  if (books.free_status != CUDA_SUCCESS) return books.free_status;
  return books.memory.erase(address) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

FakeDriver& fresh_fake_driver() {
  books = {};
  return books;
}

Driver fake_driver() {
  Driver driver;
  driver.table.get_error_name = get_error_name;
  driver.table.get_error_string = get_error_string;
  driver.table.ctx_push = push;
  driver.table.ctx_pop = pop;
  driver.table.ctx_get_current = get_current;
  driver.table.exchange_capture_mode = exchange_capture_mode;
  driver.table.ctx_create = ctx_create;
  driver.table.ctx_destroy = ctx_destroy;
  driver.table.primary_retain = primary_retain;
  driver.table.primary_release = primary_release;
  driver.table.mem_get_info = mem_get_info;
  driver.table.mem_alloc = mem_alloc;
  driver.table.mem_free = mem_free;
  driver.handles = {0};
  driver.devices = {DeviceInfo{0, "fake", 7, 5, 1, 1 << 30}};
  driver.limits.resize(1);
  return driver;
}

CUcontext fake_context(int number) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(number) * 16);
}

}  // namespace ctxbroker::detail
