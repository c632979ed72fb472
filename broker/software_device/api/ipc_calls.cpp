// SPDX-License-Identifier: Apache-2.0
// cuIpc*: memory of cuMemAlloc and events that several processes of one user share. A handle names
// a file of the process that made it, which is found through /proc.
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/event.hpp"
#include "api/shared_file.hpp"

using namespace ctxbroker::software;

namespace {

struct MemoryHandle {
  SharedFile::Name file;
  std::uint64_t bytes;
};

template <class Value, class Handle>
Handle packed(const Value& value) {
  static_assert(sizeof(Value) <= sizeof(Handle) && std::is_trivially_copyable_v<Value>);
  Handle handle = {};
  std::memcpy(&handle, &value, sizeof value);
  return handle;
}

template <class Value, class Handle>
Value unpacked(const Handle& handle) {
  Value value = {};
  std::memcpy(static_cast<void*>(&value), &handle, sizeof value);
  return value;
}

// Guards the counts of opened memory. Trivially destructible, because threads call until the end.
constinit std::mutex opening;

std::shared_ptr<Block> find_opened(const Context& context, const SharedFile::Name& name) {
  return Process::instance().memory.find_if([&](const Block& block) {
    return block.kind == Block::Kind::opened && block.context == &context &&
           block.file->is_same_as(name);
  });
}

CUresult open_memory(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  return initialised([&] {
    Context& context = working_owner();
    refuse_unsafe();
    check_value(address != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    const auto wanted = unpacked<MemoryHandle>(handle);
    std::lock_guard lock(opening);
    if (std::shared_ptr<Block> block = find_opened(context, wanted.file)) {
      ++block->opens;
      *address = block->begin;
      return;
    }
    std::shared_ptr<SharedFile> file = SharedFile::open(wanted.file);
    check_value(wanted.bytes != 0 && wanted.bytes <= file->bytes());
    check_that(wanted.file.process != file->name().process, CUDA_ERROR_INVALID_CONTEXT);
    find_device(file->device());
    *address = Process::instance().memory.add_opened(context, std::move(file), wanted.bytes)->begin;
  });
}

}  // namespace

CTXB_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    refuse_unsafe();
    check_value(handle != nullptr);
    MemoryRegistry& memory = Process::instance().memory;
    std::shared_ptr<Block> block = memory.find(address);
    check_value(block != nullptr && block->kind == Block::Kind::device);
    *handle = packed<MemoryHandle, CUipcMemHandle>({memory.share(*block)->name(), block->size});
  });
}

CTXB_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                        unsigned int flags) {
  CTXB_COUNT_CALL();
  return open_memory(address, handle, flags);
}
CTXB_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                           unsigned int flags) {
  CTXB_COUNT_CALL();
  return open_memory(address, handle, flags);
}

// Waits for the work of the context, as cuMemFree does.
CTXB_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    refuse_unsafe();
    MemoryRegistry& memory = Process::instance().memory;
    std::shared_ptr<Block> block = memory.find(address);
    check_value(block != nullptr && block->begin == address && block->kind == Block::Kind::opened);
    Executor& executor = block->device.executor;
    executor.wait(executor.pending_of_family(block->context));
    std::lock_guard lock(opening);
    if (--block->opens == 0) memory.remove(*block);
  });
}

CTXB_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Event> found = Process::instance().events.find(event);
    check_value(handle != nullptr);
    check_that(found->shared != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *handle = packed<SharedFile::Name, CUipcEventHandle>(found->shared->file->name());
  });
}

CTXB_EXPORT CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    check_value(event != nullptr);
    std::shared_ptr<SharedFile> file = SharedFile::open(unpacked<SharedFile::Name>(handle));
    check_that(file->bytes() == SharedRecord::bytes, CUDA_ERROR_INVALID_HANDLE);
    *event = Process::instance().events.insert(
        std::make_shared<Event>(context, CU_EVENT_DISABLE_TIMING,
                                std::make_shared<SharedRecord>(std::move(file))),
        [&] { context.check_alive(); });
  });
}
