// Who is inside a lease: how many guards are entered, and, for a green context, which thread sits
// in which of its siblings.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "context/thread_notes.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// NVIDIA documents that a green context may be current to one thread at a time. A thread that finds
// the first seat taken gets a sibling: another green context over the same multiprocessors.
struct alignas(64) Seat {
  std::atomic<const void*> thread{nullptr};  // whose; null: free
  int depth = 0;                             // guards of that thread in it; only it writes here
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;
};

// Any thread. Entering and leaving take no lock and allocate nothing, but for the first time that
// more threads than ever before are inside a green lease at once.
class Occupancy {
 public:
  static constexpr std::size_t most_seats = 16;  // threads inside one green lease at once

  // Makes one sibling: fills `green` and `context`. Called under a lock.
  using MakeSibling = CUresult (*)(void* maker, CUgreenCtx* green, CUcontext* context);

  // One context for all threads.
  explicit Occupancy(CUcontext context) noexcept : context_(context) {}
  // One context per thread; the first stands already.
  Occupancy(CUcontext first, MakeSibling make, void* maker) noexcept;

  // The context for this thread; `seat` is to be handed back to leave, and may be null. An error
  // when no sibling can be made for it, or it is closed: then nothing was entered.
  CUresult enter(CUcontext* context, Seat** seat) noexcept {
    *context = context_;
    *seat = nullptr;
    if (make_ != nullptr) {
      Seat* mine = &seats_[0];
      if (take(*mine)) {
        mine->depth = 1;
      } else {
        CUresult status = CUDA_SUCCESS;
        mine = sit_down(&status);
        if (mine == nullptr) return status;
      }
      *context = mine->context;
      *seat = mine;
    }
    count(&Shard::entered);
    // The other side of close: who is counted too late for it sees it.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
    leave(*seat);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  void leave(Seat* seat) noexcept {
    if (seat != nullptr && --seat->depth == 0) {
      seat->thread.store(nullptr, std::memory_order_release);
    }
    count(&Shard::left);
  }

  // Lets nobody in any more: CUDA_ERROR_INVALID_CONTEXT. False, and all is as before, when somebody
  // is inside, or nobody can tell.
  bool close() noexcept;
  void reopen() noexcept { closed_.store(false, std::memory_order_release); }

  // Guards entered now, on all threads. A snapshot.
  std::int64_t inside() const noexcept;
  // Guards entered so far.
  std::uint64_t entered() const noexcept;

  // Makes siblings ahead, so that `threads` can be inside at once and none has to wait for one.
  CUresult prepare(std::size_t threads) noexcept;

  // The siblings, without the first context: whoever ends the lease ends them.
  std::size_t seats() const noexcept { return seat_count_.load(std::memory_order_acquire); }
  const Seat& seat(std::size_t index) const noexcept { return seats_[index]; }

 private:
  // A cache line each.
  struct alignas(64) Shard {
    std::atomic<std::uint64_t> entered{0};
    std::atomic<std::uint64_t> left{0};
  };

  // Whoever sees nobody inside also sees what was done inside.
  void count(std::atomic<std::uint64_t> Shard::*counter) noexcept {
    const std::uint32_t shard = shard_of_this_thread();
    count_in_shard(shards_[shard].*counter, shard);
  }
  // True when it was free and is this thread's now. Where a thread's notes lie tells it apart.
  static bool take(Seat& seat) noexcept {
    const void* holder = seat.thread.load(std::memory_order_relaxed);
    return holder == nullptr &&
           seat.thread.compare_exchange_strong(holder, &thread_notes, std::memory_order_acquire);
  }
  // Null: none can be had, and the status says why.
  Seat* sit_down(CUresult* status) noexcept;
  Seat* free_seat() noexcept;
  CUresult add_seat(Seat** seat, const void* thread) noexcept;

  CUcontext context_;
  std::atomic<bool> closed_{false};
  MakeSibling make_ = nullptr;
  void* maker_ = nullptr;
  std::mutex growing_;
  std::atomic<std::size_t> seat_count_{0};
  std::array<Shard, all_shards> shards_;
  std::array<Seat, most_seats> seats_;
};

}  // namespace ctxbroker::detail
