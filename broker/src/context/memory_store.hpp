// SPDX-License-Identifier: Apache-2.0
// A store of device memory or of pinned memory for one tenant, which takes and frees memory there
// without waiting for its neighbours.
//
// The driver's cuMemFree waits until all work in the contexts that share the memory has ended, and
// holds up new work there meanwhile. Its cuMemHostAlloc holds up all work of the process. All this
// affects the neighbours. A store has a MemoryPool instead, which no other tenant uses, and a free
// waits for the tenant's own work alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "context/memory_pool.hpp"
#include "context/tenant_identity.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

class HungWork;
struct PutOff;

// Work that may still use memory, and the events that happen when it has ended.
struct WorkBehind {
  enum class Of : std::uint8_t {
    lease,   // the work of one green lease
    device,  // all work in the primary context and in the green contexts on it
    unknown  // no event could be recorded yet: there was a capture, or no event could be made
  };
  Of of = Of::unknown;
  std::vector<CUevent> events{};
  bool is_late = false;  // a wait for it has reached its limit
};

// The store of one lease on a device. It may outlive the lease, because its memory may. Any thread.
class MemoryStore {
 public:
  using Clock = std::chrono::steady_clock;

  // Calls `use` for each context of the lease. None of them ends meanwhile. Returns false, without
  // a call, if the lease is shared, lost or over: then its work cannot be told from other work.
  using Contexts = std::function<bool(const std::function<void(CUcontext)>& use)>;
  // The place where a store is made.
  struct Place {
    const DriverTable& driver;
    std::shared_ptr<const TenantIdentity> tenant;
    CUcontext primary;  // the work that may use the memory is in it, and in its green contexts
    std::uint64_t generation;  // of the primary
    int ordinal;               // of the device
    HungWork& family;
    Contexts contexts;  // of the lease
  };

  // Returns null if there is no pool, or if the driver is too old for a store. Throws
  // std::bad_alloc.
  static std::shared_ptr<MemoryStore> make(const Place& place, std::shared_ptr<MemoryPool> pool);
  // Makes no driver call: see `end_within`.
  ~MemoryStore() = default;
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  // Takes memory that every stream can use at once. A context of the device is current, and the
  // thread captures nothing.
  CUresult allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept;
  // Takes memory for rows, with the pitch that cuMemAllocPitch gives them. Neither size is 0.
  CUresult allocate_pitched(CUdeviceptr* out, std::size_t* pitch, std::uint64_t width,
                            std::uint64_t height) noexcept;

  // Records the work that may use the tenant's memory now. This is the work of the lease. With
  // `beyond_lease`, or if the lease is shared, lost or over, it is all work on the device.
  WorkBehind record_work(bool beyond_lease = false) noexcept;
  // Waits for the work. Returns false if the work has not ended by then; the work is late from then
  // on. While other work of the tenant is late, this only looks and does not wait.
  bool wait(WorkBehind& work, Clock::time_point until) noexcept;
  // Returns whether work of the tenant is late.
  bool is_held_up() const noexcept;
  // Takes memory back without waiting. Once the work has ended, the memory can be used again, and
  // `freed` is called: at once or later, on any thread. It may be empty.
  CUresult give_back(CUdeviceptr address, std::uint64_t bytes, WorkBehind work,
                     std::function<void()> freed = {}) noexcept;
  CUresult give_back(CUdeviceptr address, std::uint64_t bytes,
                     std::function<void()> freed = {}) noexcept {
    return give_back(address, bytes, record_work(), std::move(freed));
  }
  // Takes memory back that no work has used.
  void give_back_unused(CUdeviceptr address) noexcept { pool_->free(address); }
  // Frees memory that was given back and that no work uses any more.
  void free_what_is_done() noexcept;
  // Waits for the work behind memory that was given back, but not for late work.
  void wait_for_frees(Clock::time_point until) noexcept;

  // Gives another device access to all its memory. Peer access does this for the driver's memory.
  CUresult open_to(CUdevice other) noexcept { return pool_->open_to(other); }

  // Returns the bytes that the store keeps and that the tenant does not use.
  std::uint64_t unused() noexcept;
  // Waits for the work that the device has now. If it ends before `until`, gives unused memory back
  // to the driver. Returns whether some was given back.
  bool trim(Clock::time_point until) noexcept;
  // Frees memory that no work uses any more, and makes spare events. After 10 s without an
  // allocation, it also gives unused memory back to the driver.
  void poll() noexcept;
  // Adds the memory that waits for late work. Throws std::bad_alloc.
  void list_put_off(std::vector<PutOff>& list) const;

  // Returns until when the work of a tenant may be waited for, from now on.
  Clock::time_point latest() const noexcept {
    return limit_ > std::chrono::milliseconds::zero() ? Clock::now() + limit_
                                                      : Clock::time_point::max();
  }
  std::uint64_t generation() const noexcept { return generation_; }
  CUcontext primary() const noexcept { return primary_; }
  int device() const noexcept { return device_; }  // its ordinal
  bool is_of_host() const noexcept { return pool_->is_of_host(); }

  // Waits for the work that the device had at the first call, and ends the pool. Memory that was
  // taken from a pool of the device and not given back stays valid until it is freed. Returns false
  // if the work has not ended within the limit, or if the driver refuses. The caller has the only
  // reference to the store.
  bool end_within(Clock::duration limit) noexcept;
  // Forgets the work that was destroyed together with the store's primary context. With `is_last`,
  // the caller has the only reference to the store: then this also ends the pool. Returns
  // `is_last`.
  bool end_lost(bool is_last) noexcept;
  // Returns whether the primary context was destroyed, although nobody may have noticed.
  bool is_lost() const noexcept { return pool_->is_lost(); }
  // Makes the pool keep no freed memory, because the store stays until the process ends.
  void keep_nothing() noexcept { pool_->keep_nothing(); }

 private:
  // Memory that work may still use.
  struct Waiting {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    WorkBehind work;
    std::function<void()> freed;
  };

  MemoryStore(const Place& place, std::shared_ptr<MemoryPool> pool);
  // The unused memory that can go once that work has ended, if nothing was freed meanwhile: work of
  // another lease may use memory that the tenant has lent and freed.
  struct Trim {
    WorkBehind work;
    std::uint64_t frees = 0;
  };

  std::deque<Waiting> take_all() noexcept;
  Trim begin_trim() noexcept;
  bool end_trim(Trim& trim, bool is_over) noexcept;
  CUresult record(CUcontext context, std::vector<CUevent>& events) noexcept;
  bool have_happened(const std::vector<CUevent>& events) const noexcept;
  bool is_over(const WorkBehind& work) const noexcept;
  bool wait(const std::vector<CUevent>& events, Clock::time_point until) const noexcept;
  CUresult make_event(CUevent* event) const noexcept;
  void make_spare_events() noexcept;
  CUresult take_event(CUevent* event) noexcept;
  void keep(std::span<const CUevent> events) noexcept;
  void keep(std::vector<CUevent>& events) noexcept;
  void record_unknown() noexcept;
  bool take_done(Waiting& done) noexcept;

  const DriverTable driver_;  // the broker's may end before the store
  const std::shared_ptr<MemoryPool> pool_;
  const std::shared_ptr<const TenantIdentity> tenant_;
  const Contexts contexts_;
  CUcontext const primary_;
  const std::uint64_t generation_;
  const int device_;  // its ordinal
  const std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;
  std::deque<Waiting> waiting_;  // the oldest first
  std::size_t late_ = 0;         // how many of these wait for late work
  std::vector<CUevent> events_;  // spare ones
  std::vector<CUevent> last_;    // behind the work that `end_within` waits for
  Clock::time_point last_use_ = Clock::now();
  std::mutex poll_mutex_;     // of trim_
  std::optional<Trim> trim_;  // that `poll` has begun
};

}  // namespace ctxbroker::detail
