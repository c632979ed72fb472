// SPDX-License-Identifier: Apache-2.0
#include "api/context.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "api/capture.hpp"
#include "api/context_table.hpp"
#include "api/device.hpp"
#include "api/per_thread.hpp"
#include "api/process.hpp"
#include "api/status.hpp"
#include "exec/device_heap.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::size_t heap_alignment = 4096;

// Below this many bits above a handle's serial it is one of ours: see make_handle.
std::uint64_t serial_of(CUcontext handle) noexcept {
  auto bits = reinterpret_cast<std::uintptr_t>(handle);
  if (bits >> 40 != static_cast<std::uint64_t>(HandleKind::context) || (bits & 15) != 0) return 0;
  return (bits & ((std::uint64_t(1) << 40) - 1)) >> 4;
}

struct ThreadStack;

// All threads' stacks. Never destroyed: threads end after static objects do.
struct Stacks {
  std::mutex mutex;
  std::set<const ThreadStack*> all;
};

Stacks& stacks() {
  static Stacks& every = *new Stacks;
  return every;
}

// What is current is a property of the thread by the interface's definition.
struct ThreadStack {
  ThreadStack() {
    std::lock_guard lock(stacks().mutex);
    stacks().all.insert(this);
  }
  ~ThreadStack() {
    std::lock_guard lock(stacks().mutex);
    stacks().all.erase(this);
  }
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;

  void note() noexcept { in_use.store(!contexts.empty(), std::memory_order_release); }

  std::vector<CUcontext> contexts;
  std::atomic<bool> in_use = false;  // what other threads may know of `contexts`
};

ThreadStack& own_stack() {
  return per_thread<ThreadStack>();
}

}  // namespace

Context::Context(Device& of, ContextKind its_kind, CUcontext its_handle, unsigned its_flags)
    : device(of),
      id(next_id()),
      kind(its_kind),
      handle(its_handle),
      owner(*this),
      multiprocessors(first_multiprocessors(of.settings.multiprocessors)),
      flags(its_flags) {
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  legacy_stream = std::make_shared<Stream>(*this, Ordering::legacy, CU_STREAM_DEFAULT, 0);
  legacy_stream->legacy = legacy_stream.get();
}

// Its streams do not wait for each other, the legacy one included, as measured on NVIDIA's driver.
// So that one has the flags of such a stream, and can be captured.
Context::Context(Context& of, const MultiprocessorSet& its_multiprocessors, CUcontext its_handle)
    : device(of.device),
      id(next_id()),
      kind(ContextKind::green),
      handle(its_handle),
      owner(of),
      multiprocessors(its_multiprocessors),
      flags(of.flags.load()),
      converted(false) {
  legacy_stream = std::make_shared<Stream>(*this, Ordering::independent, CU_STREAM_NON_BLOCKING, 0);
  legacy_stream->legacy = legacy_stream.get();
}

void Context::check_alive() const {
  check_that(alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

std::shared_ptr<exec::DeviceHeap> Context::heap() {
  std::lock_guard lock(heap_mutex);
  if (device_heap == nullptr) {
    // Not a block of the registry: the host can neither copy nor free what kernels allocate.
    struct Owned {
      Owned(Device& of, std::size_t its_bytes)
          : device(of),
            registry(Process::instance().memory),
            bytes(its_bytes),
            memory(std::aligned_alloc(heap_alignment, bytes)) {
        check_that(memory != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
        if (!device.reserve(bytes)) {
          std::free(memory);
          fail(CUDA_ERROR_OUT_OF_MEMORY);
        }
        range.begin = reinterpret_cast<std::uintptr_t>(memory);
        range.end = range.begin + bytes;
        registry.add_heap(range);
        heap.emplace(static_cast<std::byte*>(memory), bytes);
      }
      ~Owned() {
        registry.remove_heap(range);
        device.give_back(bytes);
        std::free(memory);
      }
      Owned(const Owned&) = delete;
      Owned& operator=(const Owned&) = delete;

      Device& device;
      MemoryRegistry& registry;
      std::size_t bytes;
      void* memory;
      AddressRange range;
      std::optional<exec::DeviceHeap> heap;
    };
    auto owned = std::make_shared<Owned>(device, limits[CU_LIMIT_MALLOC_HEAP_SIZE]);
    device_heap = {owned, &*owned->heap};
  }
  return device_heap;
}

bool destroy_context(Context& context) {
  Process& process = Process::instance();
  Executor& executor = context.device.executor;
  bool first = false;
  executor.locked([&] { first = context.alive.exchange(false); });
  if (!first) return false;
  process.contexts.for_each_green_of(context, [](Context& green) { end_green_context(green); });
  abandon_captures(context);
  executor.wait(executor.pending_of_family(&context));
  auto belongs = [&](const auto& object) { return &object.context.owner == &context; };
  process.functions.take_all(belongs);
  process.modules.take_all(belongs);
  process.events.take_all(belongs);
  process.ended_streams.add(process.streams.take_all(belongs));
  process.arrays.take_all([&](const Array& array) { return &array.context == &context; });
  process.memory.remove_all_of(context);
  {
    std::lock_guard lock(context.heap_mutex);
    context.device_heap = nullptr;
  }
  return true;
}

void wait_for_kernels(Context& context) {
  Executor& executor = context.device.executor;
  executor.wait(executor.running_kernels_of_family(&context.owner));
  check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
}

bool end_green_context(Context& context) {
  bool first = false;
  context.device.executor.locked([&] { first = context.alive.exchange(false); });
  return first;
}

bool valid_context_flags(unsigned flags) noexcept {
  constexpr unsigned known = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                             CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE |
                             CU_CTX_SYNC_MEMOPS;
  unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~known) == 0 &&
         (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
          schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUcontext ContextTable::next_handle() const {
  return make_handle<CUcontext>(HandleKind::context,
                                primary_handles + before_ + contexts_.size() + 1);
}

std::uint64_t ContextTable::made() const {
  std::shared_lock lock(mutex_);
  return before_ + contexts_.size();
}

void ContextTable::end_all() {
  std::shared_lock lock(mutex_);
  for (const auto& context : contexts_) context->alive = false;
}

Context& ContextTable::create(Device& device, unsigned flags) {
  std::unique_lock lock(mutex_);
  contexts_.push_back(std::make_unique<Context>(device, ContextKind::own, next_handle(), flags));
  return *contexts_.back();
}

Context& ContextTable::create_green(Context& primary, const MultiprocessorSet& multiprocessors) {
  std::unique_lock lock(mutex_);
  contexts_.push_back(std::make_unique<Context>(primary, multiprocessors, next_handle()));
  return *contexts_.back();
}

void ContextTable::for_each_green_of(const Context& primary,
                                     const std::function<void(Context&)>& visit) const {
  if (primary.kind != ContextKind::primary) return;
  std::shared_lock lock(mutex_);
  for (const auto& context : contexts_)
    if (context->kind == ContextKind::green && &context->owner == &primary) visit(*context);
}

Context* ContextTable::find(CUcontext handle) const noexcept {
  std::uint64_t serial = serial_of(handle);
  if (serial <= primary_handles + before_) return nullptr;
  std::shared_lock lock(mutex_);
  std::uint64_t index = serial - primary_handles - before_ - 1;
  return index < contexts_.size() ? contexts_[index].get() : nullptr;
}

namespace context_stack {

CUcontext top() noexcept {
  const std::vector<CUcontext>& stack = own_stack().contexts;
  return stack.empty() ? nullptr : stack.back();
}

void push(CUcontext handle) {
  ThreadStack& stack = own_stack();
  stack.contexts.push_back(handle);
  stack.note();
}

bool pop(CUcontext* handle) noexcept {
  ThreadStack& stack = own_stack();
  if (stack.contexts.empty()) return false;
  if (handle != nullptr) *handle = stack.contexts.back();
  stack.contexts.pop_back();
  stack.note();
  return true;
}

void replace_top(CUcontext handle) {
  ThreadStack& stack = own_stack();
  if (!stack.contexts.empty()) stack.contexts.pop_back();
  if (handle != nullptr) stack.contexts.push_back(handle);
  stack.note();
}

bool others_in_use() {
  const ThreadStack* own = &own_stack();
  std::lock_guard lock(stacks().mutex);
  return std::any_of(stacks().all.begin(), stacks().all.end(), [&](const ThreadStack* stack) {
    return stack != own && stack->in_use.load(std::memory_order_acquire);
  });
}

}  // namespace context_stack

Context& any_context(CUcontext handle) {
  Process& process = Process::instance();
  std::uint64_t serial = serial_of(handle);
  Context* context = nullptr;
  if (serial > primary_handles)
    context = process.contexts.find(handle);
  else if (serial > 0 && serial <= process.devices.size())
    context = process.devices[serial - 1]->primary();
  check_that(context != nullptr && context->converted, CUDA_ERROR_INVALID_CONTEXT);
  return *context;
}

Context& current_context_or_corpse() {
  return any_context(context_stack::top());
}

Context& living_context(CUcontext handle) {
  Context& context = handle == nullptr ? current_context_or_corpse() : any_context(handle);
  context.check_alive();
  return context;
}

Context& working_context() {
  Context& context = living_context(nullptr);
  check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
  return context;
}

Context& working_owner() {
  return working_context().owner;
}

}  // namespace ctxbroker::software
