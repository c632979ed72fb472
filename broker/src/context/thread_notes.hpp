// What the broker keeps of each thread for guards and counters: one block, reached by one load.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

struct Frame;
struct GuardedPlace;
struct OccupancyShard;

// Plain values without a destructor: guards are still entered when static objects end, after the
// main thread's thread_local objects have ended.
//
// "initial-exec" makes it one load instead of a call. All that the library keeps per thread must
// then find room beside what the process was started with, also when the library is opened late:
// keep it to these two lines.
//
// The driver's locks wait for all that is before them: for every line that was written to, and for
// loads that wait for each other. What a guard writes here is in the first line; the second says
// at once what would take a handful of pointers to find out.
struct alignas(64) ThreadNotes {
  Frame* innermost = nullptr;  // of the guards that the thread is inside: see innermost_frame

  // The innermost guard, while nobody has looked at it: it stands on a thread that was known, on
  // which nothing was seen to change since, and there is no frame of it yet but room for one.
  const GuardedPlace* lean = nullptr;  // where it went: `place`; null: the innermost frame is there
  const char* doing = nullptr;         // whose function runs inside

  // While the gate watches: how often something may have changed what is current here or the mode
  // of capture; and the count at which nothing but `outside` was current, with the mode of capture
  // that every thread starts with.
  std::uint64_t changes = 1;
  std::uint64_t known_at = 0;
  CUcontext outside = nullptr;

  OccupancyShard* shard = nullptr;  // of this thread, in the occupancy of `place`
  std::uint32_t number = 0;         // for counters, from 1; 0: none yet

  // Where the thread went with its last lean guard: right for this tenant and device as long as
  // nothing has been lost since. `context` is what it made current.
  int device = 0;
  void* tenant = nullptr;      // says no more than which one
  std::uint64_t sound_at = 0;  // the count of losses until which it is right; 0: not at all
  const GuardedPlace* place = nullptr;
  CUcontext context = nullptr;
  decltype(DriverTable::ctx_push) push = nullptr;
  decltype(DriverTable::ctx_pop) pop = nullptr;
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

// Gives the calling thread the number it keeps until it ends. Takes no lock.
std::uint32_t number_this_thread() noexcept;

inline std::uint32_t shard_of_this_thread() noexcept {
  const std::uint32_t number = thread_notes.number;
  return (number != 0 ? number : number_this_thread()) - 1;
}

// Release: whoever sees the count also sees what was done before.
inline void count_in_shard(std::atomic<std::uint64_t>& counter, std::uint32_t shard) noexcept {
  if (shard < own_shards) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  } else {
    counter.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace ctxbroker::detail
