// Who is inside a lease: how many guards are entered, and, for a green context, which thread sits
// in which of its siblings.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "context/process_barrier.hpp"
#include "context/thread_notes.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// NVIDIA documents that a green context may be current to one thread at a time. A thread that finds
// every seat taken gets a sibling: another green context over the same multiprocessors.
//
// A seat is kept for the thread that took it: that one comes in again with plain loads and stores.
// Another one that finds no seat free takes over what is kept and not used, behind a barrier on all
// threads. A seat that went from hand to hand too often (most_moves) is anybody's from then on: a
// locked bus, each time, costs less than barriers.
struct alignas(64) Seat {
  std::atomic<const void*> thread{nullptr};  // of one that is anybody's: whose now; null: free
  int depth = 0;                             // guards of that thread in it; only it writes here
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;
  // Under the occupancy's lock:
  std::uint32_t keeper = 0;  // the number of the thread that it is kept for; 0: nobody's yet
  std::uint32_t moves = 0;   // how often it was taken over
};

// What threads of one number have of an occupancy: a cache line. Whoever sees nobody inside also
// sees what was done inside.
struct alignas(64) OccupancyShard {
  std::atomic<std::uint64_t> entered{0};
  std::atomic<std::uint64_t> left{0};
  std::atomic<CUcontext> context{nullptr};    // of its threads; null: to be asked for
  std::atomic<std::uint64_t> lean_guards{0};  // those that have ended; not in `entered`

  // For the one thread that it is of.
  void count_entered() noexcept { count(entered, std::memory_order_release); }
  void count_lean_guard() noexcept { count(lean_guards, std::memory_order_relaxed); }

  // But for a lean guard: see has_lean_guard, which is to be asked before.
  bool nobody_is_inside() const noexcept {
    const std::uint64_t gone = left.load(std::memory_order_acquire);
    return entered.load(std::memory_order_acquire) == gone;
  }

 private:
  static void count(std::atomic<std::uint64_t>& counter, std::memory_order order) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, order);
  }
};

// Any thread. Entering and leaving take no lock and allocate nothing, but for the first time that
// more threads than ever before are inside a green lease at once, and when a seat changes hands.
class Occupancy {
 public:
  static constexpr std::size_t most_seats = 16;    // threads inside one green lease at once
  static constexpr std::uint32_t most_moves = 64;  // of a seat that is kept

  // Makes one sibling: fills `green` and `context`. Called under a lock.
  using MakeSibling = CUresult (*)(void* maker, CUgreenCtx* green, CUcontext* context);
  using Barrier = bool (*)() noexcept;  // as barrier_on_all_threads

  // One context for all threads.
  explicit Occupancy(CUcontext context) noexcept;
  // One context per thread; the first stands already.
  Occupancy(CUcontext first, MakeSibling make, void* maker,
            Barrier barrier = barrier_on_all_threads) noexcept;

  // The context for this thread; `seat` is to be handed back to leave, and is null but for one that
  // is anybody's. An error when no sibling can be made for it, or it is closed: then nothing was
  // entered.
  CUresult enter(CUcontext* context, Seat** seat) noexcept {
    const std::uint32_t shard = shard_of_this_thread();
    OccupancyShard& here = shards_[shard];
    count_in_shard(here.entered, shard);
    // The other side of close and take_over: who is counted too late for them sees that there is
    // nothing here any more.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    *context = here.context.load(std::memory_order_acquire);
    *seat = nullptr;
    return *context != nullptr ? CUDA_SUCCESS : sit_down(context, seat);
  }
  void leave(Seat* seat) noexcept {
    if (seat != nullptr && --seat->depth == 0) {
      seat->thread.store(nullptr, std::memory_order_release);
    }
    const std::uint32_t shard = shard_of_this_thread();
    count_in_shard(shards_[shard].left, shard);
  }

  // Of this thread alone; null: it has none, or no number yet.
  OccupancyShard* own_shard() noexcept {
    const std::uint32_t shard = thread_notes.number - 1;
    return shard < own_shards ? &shards_[shard] : nullptr;
  }

  // Lets nobody in any more: CUDA_ERROR_INVALID_CONTEXT. False, and all is as before, when somebody
  // is inside, or nobody can tell.
  bool close() noexcept;
  void reopen() noexcept;

  // Guards entered now, on all threads. A snapshot.
  std::int64_t inside() const noexcept;
  // Guards entered so far; a lean one counts when it has ended.
  std::uint64_t entered() const noexcept;

  // Makes siblings ahead, so that `threads` can be inside at once and none has to wait for one.
  CUresult prepare(std::size_t threads) noexcept;

  // The siblings, without the first context: whoever ends the lease ends them.
  std::size_t seats() const noexcept { return seat_count_.load(std::memory_order_acquire); }
  const Seat& seat(std::size_t index) const noexcept { return seats_[index]; }

 private:
  [[gnu::cold, gnu::noinline]] CUresult sit_down(CUcontext* context, Seat** seat) noexcept;
  CUresult find_seat(CUcontext* context, Seat** seat) noexcept;
  Seat* free_seat() noexcept;
  // Under the lock:
  Seat* seat_out_of_use() noexcept;
  bool take_over(Seat& seat) noexcept;
  bool somebody_is_inside(std::uint32_t shard) const noexcept;
  bool keep_for(Seat& seat, std::uint32_t shard) noexcept;
  CUresult add_seat(Seat** seat) noexcept;
  void open() noexcept;

  std::array<OccupancyShard, all_shards> shards_;
  CUcontext context_;
  MakeSibling make_ = nullptr;
  void* maker_ = nullptr;
  Barrier barrier_ = barrier_on_all_threads;
  bool keeps_seats_ = false;  // where there is such a barrier
  std::atomic<bool> closed_{false};
  std::mutex changing_;  // who sits where
  std::atomic<std::size_t> seat_count_{0};
  std::array<Seat, most_seats> seats_;
};

}  // namespace ctxbroker::detail
