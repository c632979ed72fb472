// SPDX-License-Identifier: Apache-2.0
#include "fake_driver.hpp"

#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace ctxbroker::detail {
namespace {

FakeDriver books;
std::mutex mutex;  // of what threads of the broker change, too: contexts and their counts

// Threads of the broker have stacks of their own, which no test looks at.
bool is_tests_thread() {
  return std::this_thread::get_id() == books.thread;
}
std::vector<CUcontext>& stack_here() {
  thread_local std::vector<CUcontext> others;
  return is_tests_thread() ? books.stack : others;
}
void count_call() {
  if (is_tests_thread()) ++books.calls;
}

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
  count_call();
  if (books.push_status != CUDA_SUCCESS) return books.push_status;
  stack_here().push_back(context);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* context) {
  count_call();
  std::vector<CUcontext>& stack = stack_here();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult get_current(CUcontext* context) {
  count_call();
  const std::vector<CUcontext>& stack = stack_here();
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult exchange_capture_mode(CUstreamCaptureMode* mode) {
  std::swap(*mode, books.capture_mode);
  return CUDA_SUCCESS;
}

CUresult ctx_create(CUcontext* context, unsigned int, CUdevice) {
  if (books.create_until.valid()) books.create_until.wait();
  {
    const std::lock_guard lock(mutex);
    *context = fake_context(100 + books.contexts_made++);  // never one that exists
    books.contexts.insert(*context);
  }
  return push(*context);
}

CUresult ctx_destroy(CUcontext context) {
  if (books.destroy_until.valid()) books.destroy_until.wait();
  const std::lock_guard lock(mutex);
  return books.contexts.erase(context) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult primary_retain(CUcontext* context, CUdevice) {
  if (books.create_until.valid()) books.create_until.wait();
  const std::lock_guard lock(mutex);
  ++books.primary_retains;
  *context = fake_context(99);
  return CUDA_SUCCESS;
}

CUresult primary_release(CUdevice) {
  const std::lock_guard lock(mutex);
  if (books.primary_retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --books.primary_retains;
  return CUDA_SUCCESS;
}

CUresult mem_get_info(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(mutex);
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
  books.thread = std::this_thread::get_id();
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
