// SPDX-License-Identifier: Apache-2.0
// The memory stores of one device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "context/memory_store.hpp"

namespace ctxbroker::detail {

// Any thread.
//
// `generation` is the present generation of the device's primary context. The work of stores of an
// earlier generation was destroyed together with their primary context.
class MemoryStores {
 public:
  // Returns false if the store cannot give access to a device that is to have it. Throws
  // std::bad_alloc.
  bool add(const std::shared_ptr<MemoryStore>& store);
  // Calls MemoryStore::open_to for all stores. Stores that are added later are opened, too.
  CUresult open_to(CUdevice other, std::uint64_t generation) noexcept;
  // Frees memory that no work uses any more, so that what the stores hold is known. An event
  // happens a little later than its work ends, so this waits for a moment.
  void free_what_is_done(std::uint64_t generation) noexcept;
  // Returns the bytes of device memory that the stores keep unused.
  std::uint64_t unused(std::uint64_t generation) const noexcept;
  // Calls MemoryStore::trim for all stores.
  bool trim(std::chrono::milliseconds limit, std::uint64_t generation) noexcept;
  // Ends the stores that have no other owner any more, if the work on the device ends within the
  // limit.
  void end_unowned(MemoryStore::Clock::duration limit, std::uint64_t generation) noexcept;
  // Does the same within a moment, and calls MemoryStore::poll for all stores.
  void poll(std::uint64_t generation) noexcept;
  void list_put_off(std::vector<PutOff>& list) const;
  // Ends the stores that have no other owner. For each of them, it waits for the work on the
  // device, but no longer than `limit`. `generation` is 0 if the primary context was destroyed.
  void end_all(std::chrono::milliseconds limit, std::uint64_t generation) noexcept;

 private:
  std::vector<std::shared_ptr<MemoryStore>> of(std::uint64_t generation) const noexcept;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<MemoryStore>> stores_;
  std::vector<CUdevice> others_;  // the devices that have access
};

}  // namespace ctxbroker::detail
