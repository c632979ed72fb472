// Lean guards, of which nobody counts that they are inside: whoever closes a lease, or takes a seat
// over, asks the threads' own notes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "context/process_barrier.hpp"
#include "context/quick_guard.hpp"
#include "ctxbroker/tenant.hpp"
#include "slow_stores.hpp"

namespace ctxbroker::detail {
namespace {

thread_local CUcontext current = nullptr;

// A lease for any number of threads, on a driver that knows one current context per thread.
struct Place {
  explicit Place(Occupancy::Barrier barrier = barrier_on_all_threads)
      : occupancy(reinterpret_cast<CUcontext>(this), make, this, barrier) {
    table.ctx_push = [](CUcontext context) { return current = context, CUDA_SUCCESS; };
    table.ctx_pop = [](CUcontext* context) {
      *context = current;
      current = nullptr;
      return CUDA_SUCCESS;
    };
    table.ctx_get_current = [](CUcontext* context) { return *context = current, CUDA_SUCCESS; };
    table.current_is_watched = true;
    place.target = {&table, reinterpret_cast<CUcontext>(this), 1, &occupancy};
  }
  static CUresult make(void* self, CUgreenCtx* green, CUcontext* made) {
    *green = nullptr;
    *made = reinterpret_cast<CUcontext>(++static_cast<Place*>(self)->siblings);
    return CUDA_SUCCESS;
  }

  DriverTable table{};
  std::uintptr_t siblings = 0;
  Occupancy occupancy;
  GuardedPlace place{};
};

// What is current on this thread is known: nothing.
void know_this_thread() {
  number_this_thread();
  thread_notes.known_at = thread_notes.changes;
  thread_notes.outside = nullptr;
}

// As ctxbroker::Guard does it. False: it may not enter.
bool enter(GuardRoom& room, Place& place) {
  if (is_where_it_was(&place, 0)) {
    if (enter_lean_again(room)) return true;
    thread_notes.innermost.clear();
  }
  const Wanted wanted{&place, 0, epoch.load()};
  if (enter_lean(room, place.place, wanted)) return true;
  CUcontext context = nullptr;
  Seat* seat = nullptr;
  if (place.occupancy.enter(&context, &seat) != CUDA_SUCCESS) return false;
  place.occupancy.leave(seat);  // that one is the thread's from now on
  return enter_lean(room, place.place, wanted);
}

struct Sight {
  int closes = 0;
  int wrong = 0;  // a thread was inside what was closed
};

// Threads go in and out while another one closes and opens, at least so often and until enough is
// seen, but no longer than a minute.
Sight close_beside_guards(Occupancy::Barrier barrier, int least, bool (*enough)(const Sight&)) {
  Place place(barrier);
  std::atomic<bool> closed{false}, over{false};
  std::atomic<int> wrong{0};
  Sight sight;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        know_this_thread();
        SlowStores slow_stores;
        while (!over) {
          GuardRoom room;
          room.doing = "work";
          slow_stores();
          if (!enter(room, place)) continue;
          if (closed.load(std::memory_order_relaxed)) ++wrong;
          leave_lean();
        }
      });
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (int i = 0; i < least || !enough(sight); ++i) {
      if (std::chrono::steady_clock::now() > limit) break;
      if (!place.occupancy.close()) continue;
      ++sight.closes;
      closed.store(true, std::memory_order_relaxed);
      for (int spin = 0; spin < 2000; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
      closed.store(false);
      place.occupancy.reopen();
      sight.wrong = wrong;
    }
    over = true;
  }
  EXPECT_EQ(place.occupancy.inside(), 0);
  return sight;
}

TEST(LeanGuardTest, NobodyIsInsideWhatIsClosed) {
  if (!barrier_on_all_threads()) GTEST_SKIP() << "this system has no such barrier";
  const Sight sight = close_beside_guards(barrier_on_all_threads, 2000,
                                          [](const Sight& so_far) { return so_far.closes > 100; });
  EXPECT_EQ(sight.wrong, 0);
  EXPECT_GT(sight.closes, 0);
}

// The control: what a processor has not written yet, the other one does not see.
TEST(LeanGuardTest, WithoutTheBarrierSomebodyIs) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own locks are barriers enough";
#endif
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two processors";
  const Sight sight = close_beside_guards([]() noexcept { return true; }, 1,
                                          [](const Sight& so_far) { return so_far.wrong > 0; });
  EXPECT_GT(sight.wrong, 0);
}

TEST(LeanGuardTest, IsCountedInsideAndAfterwards) {
  std::jthread([] {
    know_this_thread();
    Place place;
    GuardRoom room;
    room.doing = "work";
    ASSERT_TRUE(enter(room, place));
    leave_lean();
    const std::uint64_t before = place.occupancy.entered();
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(enter(room, place));
      EXPECT_EQ(place.occupancy.inside(), 1);
      EXPECT_FALSE(place.occupancy.close());
      innermost_frame();  // from here on it is as any other
      EXPECT_EQ(place.occupancy.inside(), 1);
      EXPECT_EQ(place.occupancy.entered(), before + 2 * i + 1);
      leave(*innermost_frame());
      EXPECT_EQ(place.occupancy.inside(), 0);
      ASSERT_TRUE(enter(room, place));
      leave_lean();
      EXPECT_EQ(place.occupancy.inside(), 0);
      EXPECT_EQ(place.occupancy.entered(), before + 2 * i + 2);
    }
  }).join();
}

// It stands through the end of an epoch. The next one is not to be slower for it.
TEST(LeanGuardTest, IsRightInTheNextEpochOnceItIsLookedAt) {
  std::jthread([] {
    know_this_thread();
    Place place;
    GuardRoom room;
    room.doing = "work";
    ASSERT_TRUE(enter(room, place));
    EXPECT_TRUE(is_right_there());
    end_epoch();
    EXPECT_FALSE(is_right_there());
    stay_right(&place, epoch.load());
    EXPECT_TRUE(is_right_there());
    innermost_frame();
    end_epoch();
    stay_right(&place, epoch.load());
    EXPECT_FALSE(is_right_there()) << "a frame says for itself what is right";
    leave(*innermost_frame());
  }).join();
}

// What it remembers is another place's: nobody is in the one that was left.
TEST(LeanGuardTest, IsInsideWhereItStandsAndNowhereElse) {
  std::jthread([] {
    know_this_thread();
    Place first, second;
    GuardRoom room;
    room.doing = "work";
    ASSERT_TRUE(enter(room, first));
    leave_lean();
    ASSERT_TRUE(enter(room, second));
    EXPECT_EQ(first.occupancy.inside(), 0);
    EXPECT_EQ(second.occupancy.inside(), 1);
    leave_lean();
  }).join();
}

// A thread ends with a guard that nobody ended: it is inside for good, and its shard is free.
TEST(LeanGuardTest, OfAThreadThatEndedStaysInside) {
  Place place;
  static GuardRoom room;  // outlives the thread, as the stack of a guard that is left does not
  room.doing = "work";
  std::jthread([&] {
    know_this_thread();
    ASSERT_TRUE(enter(room, place));
  }).join();
  EXPECT_EQ(place.occupancy.inside(), 1);
  EXPECT_FALSE(place.occupancy.close());
  EXPECT_EQ(place.occupancy.inside(), 1);
}

}  // namespace
}  // namespace ctxbroker::detail
