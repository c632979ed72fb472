// SPDX-License-Identifier: Apache-2.0
// The place where a MemoryStore takes memory from and frees it.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace ctxbroker::detail {

// Memory of one device, or pinned host memory near it. No call waits for work that uses the memory.
// Any thread.
class MemoryPool {
 public:
  virtual ~MemoryPool() = default;

  // Returns what the memory is: "device memory". Static text.
  virtual const char* what() const noexcept = 0;
  virtual bool is_of_host() const noexcept = 0;

  // Takes memory that every stream can use at once. A context of the device is current, and the
  // thread captures nothing.
  virtual CUresult allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept = 0;
  // Returns in `unit` the number of bytes of which the driver makes each row a multiple.
  virtual CUresult find_pitch_unit(std::uint64_t* unit) noexcept = 0;
  // Frees memory that no work uses any more. The next allocation can get it.
  virtual CUresult free(CUdeviceptr address) noexcept = 0;

  // Gives another device access to all its memory.
  virtual CUresult open_to(CUdevice other) noexcept = 0;

  // Returns the bytes that are free and that the driver does not have.
  virtual std::uint64_t unused() noexcept = 0;
  // Returns whether a trim would give something back.
  virtual bool keeps_unused() noexcept = 0;
  // Returns how often memory was freed.
  virtual std::uint64_t frees() noexcept = 0;
  // Gives unused memory back to the driver, unless memory was freed more often than `frees` says.
  // Returns whether some was given back.
  virtual bool trim(std::uint64_t frees) noexcept = 0;
  // Makes the pool keep no freed memory from now on.
  virtual void keep_nothing() noexcept = 0;

  // Ends the pool after all work that uses its memory. If the driver refuses, call it again.
  virtual CUresult end() noexcept = 0;
  // Returns whether what the pool needs of the primary context has ended with it.
  virtual bool is_lost() noexcept { return false; }
  // Ends the pool after the primary context, and all work in it, has been destroyed. Its memory
  // outlives the context, so this frees what was taken and not freed. The caller has the only use
  // of the pool.
  virtual void end_without_context() noexcept = 0;
};

}  // namespace ctxbroker::detail
