// SPDX-License-Identifier: Apache-2.0
// A context: what streams, modules, events and memory belong to and die with.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "api/command.hpp"
#include "api/cuda_api.hpp"
#include "api/multiprocessors.hpp"
#include "api/stream.hpp"

namespace ctxbroker::software {

class Device;
namespace exec {
class DeviceHeap;
}

enum class ContextKind : std::uint8_t { primary, own, green };

// One life of a context. A primary context that is reset and retained again is a new object with
// the same handle. Objects are never freed: whoever holds the handle of a dead context must get an
// answer, and a context is small.
struct Context {
  Context(Device& of, ContextKind its_kind, CUcontext its_handle, unsigned its_flags);
  // A green context of a primary, with these multiprocessors.
  Context(Context& of, const MultiprocessorSet& its_multiprocessors, CUcontext its_handle);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device;
  const std::uint64_t id;  // of this life; unique in the process
  const ContextKind kind;
  const CUcontext handle;  // of a green context also the CUgreenCtx
  // What memory, modules, events, limits and cache modes belong to: a green context's primary, else
  // the context itself.
  Context& owner;
  const MultiprocessorSet multiprocessors;
  std::atomic<unsigned> flags;
  std::atomic<bool> alive = true;
  std::atomic<bool> converted = true;  // of a green one: by cuCtxFromGreenCtx
  std::atomic<int> usage = 1;          // cuCtxCreate and cuCtxAttach, less cuCtxDetach
  std::atomic<CUfunc_cache> cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::atomic<CUsharedconfig> shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  std::array<std::atomic<std::size_t>, CU_LIMIT_MAX> limits = {};
  std::mutex heap_mutex;
  std::shared_ptr<exec::DeviceHeap> device_heap;  // null until a kernel that uses it is launched
  std::mutex peers_mutex;
  std::set<const Context*> peers;  // to which access was enabled
  std::shared_ptr<Stream> legacy_stream;
  // Held while a stream is made or ended, while an event is made, and while the load of a module
  // waits for kernels. So these wait for such a load, as with NVIDIA's driver.
  std::mutex life_of_streams;

  // Throws CUDA_ERROR_CONTEXT_IS_DESTROYED. What is entered in a table asks this under the table's
  // lock, so that destroy_context finds everything.
  void check_alive() const;
  // What kernels allocate from; made of CU_LIMIT_MALLOC_HEAP_SIZE bytes when first asked for.
  // CUDA_ERROR_OUT_OF_MEMORY.
  std::shared_ptr<exec::DeviceHeap> heap();
};

// Ends a primary or own context, green ones of it first: waits for its work, then gives back
// everything in it. False if somebody else ended it first.
bool destroy_context(Context& context);
// Waits for the kernels that run in the context's family (a primary with its green ones, or a
// private one). NVIDIA's driver does so before it makes a green context, and before it loads or
// unloads code.
void wait_for_kernels(Context& context);
// Ends a green context. Its work goes on; its streams stay, and each use of them is an error, as
// NVIDIA's documentation says. False if somebody else ended it first.
bool end_green_context(Context& context);

// Whether cuCtxCreate and the like accept these flags.
bool valid_context_flags(unsigned flags) noexcept;

// The thread's stack of contexts. Handles of dead contexts stay on it, as with NVIDIA's driver.
namespace context_stack {

CUcontext top() noexcept;  // null when empty
void push(CUcontext handle);
bool pop(CUcontext* handle) noexcept;  // false when empty
void replace_top(CUcontext handle);    // pushes when empty; null pops
bool others_in_use();                  // has any other thread a context on its stack?

}  // namespace context_stack

// The context of a handle, dead ones included; CUDA_ERROR_INVALID_CONTEXT for what never was one,
// and for a green one that was not converted.
Context& any_context(CUcontext handle);
// The same for a living one; CUDA_ERROR_CONTEXT_IS_DESTROYED. Null means the current one, and
// CUDA_ERROR_INVALID_CONTEXT when there is none.
Context& living_context(CUcontext handle);
// The current one, dead or alive; CUDA_ERROR_INVALID_CONTEXT when there is none.
Context& current_context_or_corpse();

// The current context for a call that works with it: alive, and the process without a fault.
Context& working_context();
// What is made now belongs to: working_context().owner.
Context& working_owner();

}  // namespace ctxbroker::software
