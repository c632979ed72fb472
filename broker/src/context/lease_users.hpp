// SPDX-License-Identifier: Apache-2.0
// Who uses a lease: which threads are in a guard of it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "context/thread_state.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The status of a thread that has waited in vain for its way into a lease. The driver returns it
// when a device cannot be had at the moment, and nothing else that the broker does leads to it.
inline constexpr CUresult no_slot = CUDA_ERROR_DEVICE_UNAVAILABLE;

// One thread's way into a lease. A thread that is inside owns a slot; nobody else can be in it.
struct alignas(64) LeaseSlot {
  std::atomic<std::uint64_t> owner{0};  // the thread's number; 0: free
  std::uint32_t again = 0;              // how often the owner entered once more; only it looks
  CUcontext context = nullptr;          // what a guard in this slot makes current
  CUgreenCtx green = nullptr;           // of a green lease: what `context` belongs to
  std::atomic<std::uint64_t> entered{0};
};

// Any thread. Entering and leaving take no lock and allocate nothing once there are as many slots
// as threads that are inside at once.
//
// In a shared or private lease every slot has the same context. NVIDIA documents that a green
// context may be current on one thread at a time, so in a green lease of a plug-in library each
// slot has a context of its own over the same multiprocessors, made when more threads than ever
// before are inside at once. The code of a tenant that the host opened expects one default stream
// on all its threads, as in a process alone. Its threads without guards have the first context
// anyhow, and the drivers that were measured let them, so there every slot has the same one.
class LeaseUsers {
 public:
  static constexpr std::size_t most_slots = 1024;
  // Of a green lease. A green context takes about 5 MiB of device memory.
  static constexpr std::size_t most_green_contexts = 64;

  // Functions of the lease for its users. They get `self`.
  struct Room {
    // How long a thread waits for a slot. Zero: as long as it takes.
    std::chrono::milliseconds limit{0};
    // Makes one more green context; fills `green` and `context`. It may take until the limit after
    // `since`, and then returns CUDA_ERROR_NOT_READY. Called by one thread at a time, without a
    // lock. With it each slot gets a context of its own; null: every slot has the same one.
    CUresult (*make)(void* self, CUgreenCtx* green, CUcontext* context,
                     std::chrono::steady_clock::time_point since) = nullptr;
    // Says that a thread has waited for longer than the limit. May be null.
    void (*report_full)(void* self) = nullptr;
    void* self = nullptr;
    int device = 0;  // the ordinal of the lease's device
  };

  // `context` is that of the first slot.
  explicit LeaseUsers(CUcontext context, const Room& room) noexcept
      : context_(context), room_(room) {}
  explicit LeaseUsers(CUcontext context) noexcept : LeaseUsers(context, Room()) {}
  ~LeaseUsers();
  LeaseUsers(const LeaseUsers&) = delete;
  LeaseUsers& operator=(const LeaseUsers&) = delete;

  // Gives the calling thread a slot: the one that it owns in this lease, or a free one. When as
  // many threads are inside as there may be contexts, or no other context can be made, the thread
  // waits until a slot is free, no longer than the limit. With `may_wait` false it gets another
  // context instead, because two threads that are in other leases already would wait for each
  // other. After an error nothing was entered: `no_slot` after the limit,
  // CUDA_ERROR_INVALID_CONTEXT when it is closed, CUDA_ERROR_OUT_OF_MEMORY, or what the driver
  // answered.
  [[gnu::cold]] CUresult enter(LeaseSlot** slot, bool may_wait) noexcept;
  // The slot that a thread without a guard, which is in no lease, had last; or null, when it is not
  // free or not there.
  [[gnu::always_inline]] LeaseSlot* enter_again() noexcept {
    const std::uint64_t me = thread_state.number;  // 0: this thread has none yet
    const std::size_t count = slot_count();
    const std::size_t likely = thread_state.slot_hint < count ? thread_state.slot_hint : 0;
    if (count == 0 || me == 0) [[unlikely]]
      return nullptr;
    LeaseSlot& last = at(likely);
    return acquire(last, me) ? &last : nullptr;
  }
  static void leave(LeaseSlot& slot) noexcept {
    if (slot.again != 0) [[unlikely]] {
      --slot.again;
    } else {
      slot.owner.store(0, std::memory_order_release);
    }
  }

  // Lets no other thread in from now on, if no thread is inside; the calling thread may still
  // enter. False: a thread is inside or about to be, perhaps this one, and everything is as before.
  // Threads that enter meanwhile wait for the answer.
  bool close() noexcept;
  void reopen() noexcept;          // after close, on the same thread
  void close_for_good() noexcept;  // after close, on the same thread: nobody can enter any more

  bool is_open() const noexcept;

  // How many threads are inside now, and how often threads entered so far. Snapshots.
  std::size_t inside() const noexcept;
  std::uint64_t entered() const noexcept;

  std::size_t most() const noexcept { return is_green() ? most_green_contexts : most_slots; }
  std::size_t slot_count() const noexcept { return slot_count_.load(std::memory_order_acquire); }
  const LeaseSlot& slot(std::size_t index) const noexcept { return at(index); }
  // The first context: the one by which the tenant knows the lease, on every thread.
  CUcontext context() const noexcept { return context_; }
  int device() const noexcept { return room_.device; }
  bool has_context(CUcontext context) const noexcept;
  // Calls `use(context)` for each context of the lease but `but`.
  template <typename Use>
  void for_each_other(CUcontext but, Use&& use) const {
    if (context_ != but) use(context_);
    for (std::size_t index = 1, count = is_green() ? slot_count() : 0; index < count; ++index) {
      if (CUcontext const one = at(index).context; one != but) use(one);
    }
  }
  bool has_sibling(CUgreenCtx green) const noexcept;  // that `make` made

 private:
  static constexpr std::size_t block_size = 16;
  using Block = std::array<LeaseSlot, block_size>;

  LeaseSlot& at(std::size_t index) const noexcept {
    return (*blocks_[index / block_size].load(std::memory_order_acquire))[index % block_size];
  }
  [[gnu::always_inline]] static bool acquire(LeaseSlot& slot, std::uint64_t me) noexcept {
    std::uint64_t free = 0;
    if (slot.owner.load(std::memory_order_relaxed) != 0 ||
        !slot.owner.compare_exchange_strong(free, me, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
      return false;
    }
    slot.entered.store(slot.entered.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  LeaseSlot* own_slot() const noexcept;
  LeaseSlot* free_slot() const noexcept;
  using Time = std::chrono::steady_clock::time_point;
  CUresult enter_slowly(LeaseSlot** slot, bool may_wait, Time since) noexcept;
  bool prepare_slot() noexcept;
  LeaseSlot& add_slot(CUcontext context, CUgreenCtx green) noexcept;
  bool is_green() const noexcept { return room_.make != nullptr; }

  CUcontext context_;
  const Room room_;
  std::atomic<std::size_t> slot_count_{0};
  std::array<std::atomic<Block*>, most_slots / block_size> blocks_{};
  mutable std::mutex changing_;  // guards what follows, and the adding of slots
  std::uint64_t closed_by_ = 0;  // a thread's number; 0: open
  bool making_ = false;          // a thread makes the context of the next slot
};

}  // namespace ctxbroker::detail
