// A context: what streams, modules, events and memory belong to and die with.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "api/command.hpp"
#include "api/cuda_api.hpp"
#include "api/stream.hpp"

namespace ctxbroker::software {

class Device;

// One life of a context. A primary context that is reset and retained again is a new object with
// the same handle. Objects are never freed: whoever holds the handle of a dead context must get an
// answer, and a context is small.
struct Context {
  Context(Device& of, bool is_primary, CUcontext its_handle, unsigned its_flags);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device;
  const std::uint64_t id;  // of this life; unique in the process
  const bool primary;
  const CUcontext handle;
  std::atomic<unsigned> flags;
  std::atomic<bool> alive = true;
  std::atomic<int> usage = 1;  // cuCtxCreate and cuCtxAttach, less cuCtxDetach
  std::atomic<CUfunc_cache> cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::atomic<CUsharedconfig> shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  std::array<std::atomic<std::size_t>, CU_LIMIT_MAX> limits = {};
  std::atomic<std::uint64_t> peers = 0;  // a bit per device to which access was enabled
  std::shared_ptr<Stream> legacy_stream;

  // Throws CUDA_ERROR_CONTEXT_IS_DESTROYED. What is entered in a table asks this under the table's
  // lock, so that destroy_context finds everything.
  void require_alive() const;
};

// Ends the context: waits for its work, then gives back everything in it. False if somebody else
// ended it first.
bool destroy_context(Context& context);

// Whether cuCtxCreate and the like accept these flags.
bool valid_context_flags(unsigned flags) noexcept;

// The thread's stack of contexts. Handles of dead contexts stay on it, as with NVIDIA's driver.
namespace context_stack {

CUcontext top() noexcept;  // null when empty
void push(CUcontext handle);
bool pop(CUcontext* handle) noexcept;  // false when empty
void replace_top(CUcontext handle);    // pushes when empty; null pops

}  // namespace context_stack

// The context of a handle, dead ones included; CUDA_ERROR_INVALID_CONTEXT for what never was one.
Context& any_context(CUcontext handle);
// The same for a living one; CUDA_ERROR_CONTEXT_IS_DESTROYED. Null means the current one, and
// CUDA_ERROR_INVALID_CONTEXT when there is none.
Context& living_context(CUcontext handle);
// The current one, dead or alive; CUDA_ERROR_INVALID_CONTEXT when there is none.
Context& current_context_or_corpse();

// The current context for a call that works with it: alive, and the process without a fault.
Context& working_context();

}  // namespace ctxbroker::software
