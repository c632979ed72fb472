// What the broker keeps of each thread for guards and counters: one block, reached by one load.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

struct Frame;
struct GuardedPlace;
struct GuardRoom;
struct OccupancyShard;

// The innermost of the guards that a thread is inside: a frame; or, of a lean guard, the room for
// one (see ThreadNotes). One word for both, and for "nobody is inside" to other threads: it is most
// of what a lean guard writes. Only its own thread writes it.
class Innermost {
 public:
  // What it is at a look.
  class Look {
   public:
    bool none() const noexcept { return word_ == 0; }
    bool is_lean() const noexcept { return (word_ & lean) != 0; }
    Frame* frame() const noexcept { return reinterpret_cast<Frame*>(word_); }  // not of a lean one

   private:
    friend class Innermost;
    explicit Look(std::uintptr_t word) noexcept : word_(word) {}
    std::uintptr_t word_;
  };
  Look look() const noexcept { return Look(word()); }
  bool none() const noexcept { return look().none(); }
  bool is_lean() const noexcept { return look().is_lean(); }
  bool is_lean(const GuardRoom& room) const noexcept { return word() == at(&room) + lean; }
  Frame* frame() const noexcept { return look().frame(); }
  GuardRoom& room() const noexcept { return *reinterpret_cast<GuardRoom*>(word() - lean); }

  // Whoever sees that it is not lean any more also sees what was done inside.
  void set(Frame* frame) noexcept { word_.store(at(frame), std::memory_order_release); }
  void set_lean(GuardRoom& room) noexcept {
    word_.store(at(&room) + lean, std::memory_order_release);
  }
  void clear() noexcept { word_.store(0, std::memory_order_release); }

  // For other threads.
  bool is_seen_lean() const noexcept { return (word_.load(std::memory_order_acquire) & lean) != 0; }

 private:
  static constexpr std::uintptr_t lean = 1;
  static std::uintptr_t at(const void* place) noexcept {
    return reinterpret_cast<std::uintptr_t>(place);
  }
  std::uintptr_t word() const noexcept { return word_.load(std::memory_order_relaxed); }
  std::atomic<std::uintptr_t> word_{0};
};

// Plain values without a destructor: guards are still entered when static objects end, after the
// main thread's thread_local objects have ended.
//
// "initial-exec" makes it one load instead of a call. All that the library keeps per thread must
// then find room beside what the process was started with, also when the library is opened late:
// keep it to these two lines.
//
// A lean guard is one that stands on a thread that was known, on which nothing was seen to change
// since: there is no frame of it until somebody looks. The driver's locks wait for all that is
// before them, for every line that was written to and for loads that wait for each other: what such
// a guard reads and writes is in the first line, and says at once what would take a handful of
// pointers to find out.
struct alignas(64) ThreadNotes {
  Innermost innermost;  // see innermost_frame

  // Where the thread's last lean guard went, or is: right for this tenant and device in the epoch
  // `sound_at`, as long as no change is seen; see changed.
  std::uint64_t sound_at = 0;  // 0: not right
  void* tenant = nullptr;      // the Tenant of it: where it stood
  int device = 0;
  std::uint32_t number = 0;                      // for counters, from 1; 0: none yet
  std::atomic<OccupancyShard*> shard = nullptr;  // of this thread, in the occupancy of `place`
  CUcontext context = nullptr;                   // what is made current
  CUcontext unmixed = nullptr;  // what a pop gives where nothing has to be looked at: `context`;
                                // no context at all where the thread has one of its own below
  decltype(DriverTable::ctx_push) push = nullptr;

  decltype(DriverTable::ctx_pop) pop = nullptr;
  const GuardedPlace* place = nullptr;

  // While the gate watches: how often something may have changed what is current here or the mode
  // of capture; and the count at which nothing but `outside` was current, with the mode of capture
  // that every thread starts with.
  std::uint64_t changes = 1;
  std::uint64_t known_at = 0;
  CUcontext outside = nullptr;

  void changed() noexcept {
    ++changes;
    sound_at = 0;
  }
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadNotes thread_notes;

// A counter that threads spread over shards, so that they do not slow each other down. Up to
// `own_shards` threads at a time have one each, and count with plain stores: a bus that is locked
// would be most of what a guard costs. All others share a few.
inline constexpr std::uint32_t own_shards = 32;
inline constexpr std::uint32_t shared_shards = 8;
inline constexpr std::uint32_t all_shards = own_shards + shared_shards;

// Makes the frame that a lean guard goes without: what it does not note is as it was when the
// thread was known.
void make_frame_of_lean_guard() noexcept;

// Gives the calling thread the number it keeps until it ends, and makes its notes known to
// has_lean_guard, under a lock that nobody holds for longer than a look at them takes.
std::uint32_t number_this_thread() noexcept;

inline std::uint32_t shard_of_this_thread() noexcept {
  const std::uint32_t number = thread_notes.number;
  return (number != 0 ? number : number_this_thread()) - 1;
}

// True when a lean guard of the thread that has this shard to itself stands in that occupancy, or
// nobody can tell. Any thread; behind a barrier on all threads it is the truth.
bool has_lean_guard(std::uint32_t shard, const OccupancyShard& in) noexcept;

// Release: whoever sees the count also sees what was done before.
inline void count_in_shard(std::atomic<std::uint64_t>& counter, std::uint32_t shard) noexcept {
  if (shard < own_shards) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  } else {
    counter.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace ctxbroker::detail
