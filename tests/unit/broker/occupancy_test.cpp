#include "context/occupancy.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "context/process_barrier.hpp"
#include "context/unguarded.hpp"
#include "slow_stores.hpp"

namespace ctxbroker::detail {
namespace {

// So that what must not meet would.
void linger() {
  for (int i = 0; i < 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// More threads than have a counter of their own.
TEST(OccupancyTest, CountsEveryThread) {
  constexpr int threads = 100, rounds = 1000;
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  std::barrier together(threads + 1);
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      CUcontext context = nullptr;
      Seat* seat = nullptr;
      for (int round = 0; round < rounds; ++round) {
        ASSERT_EQ(occupancy.enter(&context, &seat), CUDA_SUCCESS);
        occupancy.leave(seat);
      }
      occupancy.enter(&context, &seat);
      together.arrive_and_wait();  // all are inside
      together.arrive_and_wait();
      occupancy.leave(seat);
    });
  }
  together.arrive_and_wait();
  EXPECT_EQ(occupancy.inside(), threads);
  together.arrive_and_wait();
  all.clear();
  EXPECT_EQ(occupancy.inside(), 0);
  EXPECT_EQ(occupancy.entered(), std::uint64_t{threads} * (rounds + 1));
}

TEST(OccupancyTest, ClosesWhenNobodyIsInsideAndLetsNobodyIn) {
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  CUcontext context = nullptr;
  Seat* seat = nullptr;
  ASSERT_EQ(occupancy.enter(&context, &seat), CUDA_SUCCESS);
  EXPECT_FALSE(occupancy.close());
  ASSERT_EQ(occupancy.enter(&context, &seat), CUDA_SUCCESS) << "as before";
  occupancy.leave(seat);
  occupancy.leave(seat);
  if (!barrier_on_all_threads()) GTEST_SKIP() << "this system has no such barrier";
  EXPECT_TRUE(occupancy.close());
  EXPECT_EQ(occupancy.enter(&context, &seat), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(occupancy.inside(), 0);
  occupancy.reopen();
  EXPECT_EQ(occupancy.enter(&context, &seat), CUDA_SUCCESS);
  occupancy.leave(seat);
}

// Never both: a thread inside, and closed.
TEST(OccupancyTest, NobodyIsInsideWhatIsClosed) {
  if (!barrier_on_all_threads()) GTEST_SKIP() << "this system has no such barrier";
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  std::atomic<bool> closed{false}, over{false};
  std::atomic<int> wrong{0}, closes{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!over) {
          CUcontext context = nullptr;
          Seat* seat = nullptr;
          if (occupancy.enter(&context, &seat) != CUDA_SUCCESS) continue;
          linger();
          if (closed.load(std::memory_order_relaxed)) ++wrong;
          occupancy.leave(seat);
        }
      });
    }
    // On a busy machine somebody may be inside each time for long.
    for (int i = 0; i < 5000 || closes == 0; ++i) {
      if (!occupancy.close()) continue;
      ++closes;
      closed.store(true, std::memory_order_relaxed);
      linger();
      closed.store(false, std::memory_order_release);
      occupancy.reopen();
    }
    over = true;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(closes, 0);
}

// Green: contexts by number, made as they are needed.
struct Green {
  explicit Green(Occupancy::Barrier barrier = barrier_on_all_threads)
      : occupancy(context(0), make, this, barrier) {}

  std::atomic<int> made{1};
  std::atomic<int> users[Occupancy::most_seats + 1] = {};
  Occupancy occupancy;

  static CUcontext context(int number) {
    return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(number + 1));
  }
  static CUresult make(void* self, CUgreenCtx* green, CUcontext* made) {
    *green = nullptr;
    *made = context(static_cast<Green*>(self)->made++);
    return CUDA_SUCCESS;
  }
  // True when nobody else was in the same context meanwhile.
  template <typename Work>
  bool alone(Work&& work) {
    CUcontext context = nullptr;
    Seat* seat = nullptr;
    if (occupancy.enter(&context, &seat) != CUDA_SUCCESS) return false;
    std::atomic<int>& here = users[reinterpret_cast<std::uintptr_t>(context)];
    bool alone = here.fetch_add(1) == 0;
    work();
    alone = here.fetch_sub(1) == 1 && alone;
    occupancy.leave(seat);
    return alone;
  }
};

TEST(GreenOccupancyTest, OneThreadAtATimeIsInOneContext) {
  for (const int threads : {2, 3, 8}) {
    Green green;
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> all;
      for (int i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
          for (int round = 0; round < 2000; ++round) {
            if (!green.alone(linger)) ++wrong;
            if (round % 64 == i) std::this_thread::yield();
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0) << threads;
    EXPECT_EQ(green.occupancy.inside(), 0);
  }
}

// A thread that comes back to the seat that is kept for it, and one that wants to take it over, at
// the same time or nearly so, again and again.
struct Meetings {
  int shared = 0;      // both were in one context
  int taken_over = 0;  // the seat changed hands
  int siblings = 0;    // it did not, and another was made

  // At least so many times, and until `seen` is; but no longer than a minute: on a busy machine the
  // two seldom run at the same time.
  Meetings(Occupancy::Barrier barrier, int least, bool (*seen)(const Meetings&)) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    constexpr int most = std::numeric_limits<int>::max() - 1;
    std::unique_ptr<Green> green;
    std::atomic<int> round{0}, done{0};
    std::atomic<bool> wrong{false};
    SlowStores slow_stores;
    const auto linger_a_while = [] {
      for (int i = 0; i < 20; ++i) linger();
    };
    std::jthread other([&] {
      for (int next = 1; next <= most; ++next) {
        while (round.load() < next) std::this_thread::yield();
        if (round.load() > most) break;
        for (int i = next % 61; i > 0; --i) linger();
        if (!green->alone(linger_a_while)) wrong = true;
        done = next;
      }
    });
    for (int now = 1; now <= most; ++now) {
      green = std::make_unique<Green>(barrier);
      green->alone([] {});  // kept from here on
      round = now;
      for (int i = now % 41; i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
      for (int i = now % 17; i > 0; --i) linger();
      slow_stores();
      if (!green->alone(linger_a_while)) wrong = true;
      while (done.load() < now) std::this_thread::yield();
      if (wrong.exchange(false)) ++shared;
      if (green->made > 1) ++siblings;
      for (std::size_t i = 0; i < green->occupancy.seats(); ++i) {
        if (green->occupancy.seat(i).moves > 0) ++taken_over;
      }
      if (now >= least && (seen(*this) || std::chrono::steady_clock::now() > limit)) break;
    }
    round = most + 1;
  }
};

TEST(GreenOccupancyTest, ASeatIsTakenOverOnlyFromWhoIsNotInIt) {
  if (!barrier_on_all_threads()) GTEST_SKIP() << "this system has no such barrier";
  const Meetings meetings(barrier_on_all_threads, 2000, [](const Meetings& so_far) {
    return so_far.taken_over > 0 && so_far.siblings > 0;
  });
  EXPECT_EQ(meetings.shared, 0);
  EXPECT_GT(meetings.taken_over, 0);
  EXPECT_GT(meetings.siblings, 0);
}

// The control: what a processor has not written yet, the other one does not see.
TEST(GreenOccupancyTest, WithoutTheBarrierTwoThreadsMeetInOneContext) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own locks are barriers enough";
#endif
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two processors";
  const Meetings meetings([]() noexcept { return true; }, 1,
                          [](const Meetings& so_far) { return so_far.shared > 0; });
  EXPECT_EQ(meetings.shared, 1);
}

TEST(GreenOccupancyTest, OneAfterTheOtherNeedOneContext) {
  Green green;
  for (int i = 0; i < 40; ++i) {
    std::jthread([&] { EXPECT_TRUE(green.alone([] {})); }).join();
    EXPECT_TRUE(green.alone([&] { EXPECT_TRUE(green.occupancy.inside() == 1); }));
  }
  EXPECT_EQ(green.made, 1);
  // The control: one beside the other need two.
  EXPECT_TRUE(green.alone([&] { std::jthread([&] { EXPECT_TRUE(green.alone([] {})); }).join(); }));
  EXPECT_EQ(green.made, 2);
}

TEST(GreenOccupancyTest, AThreadInsideComesInAgain) {
  Green green;
  CUcontext outer = nullptr, inner = nullptr;
  Seat *first = nullptr, *second = nullptr;
  ASSERT_EQ(green.occupancy.enter(&outer, &first), CUDA_SUCCESS);
  ASSERT_EQ(green.occupancy.enter(&inner, &second), CUDA_SUCCESS);
  EXPECT_EQ(inner, outer);
  green.occupancy.leave(second);
  std::jthread([&] { EXPECT_TRUE(green.alone([] {})); }).join();
  EXPECT_EQ(green.made, 2) << "the seat is taken still";
  green.occupancy.leave(first);
}

TEST(BorrowersTest, AreToldWhenTheContextHasEnded) {
  const auto borrowers = std::make_shared<Borrowers>(0);
  std::jthread([&] {
    EXPECT_TRUE(borrow_on_this_thread(borrowers));
    EXPECT_TRUE(borrow_on_this_thread(borrowers)) << "once";
    EXPECT_EQ(*borrowers, 1);
    EXPECT_FALSE(close_to_borrowers(*borrowers));
  }).join();
  EXPECT_EQ(*borrowers, 0) << "until the thread ends";
  EXPECT_TRUE(close_to_borrowers(*borrowers));
  std::jthread([&] { EXPECT_FALSE(borrow_on_this_thread(borrowers)); }).join();
  reopen_to_borrowers(*borrowers);
  std::jthread([&] { EXPECT_TRUE(borrow_on_this_thread(borrowers)); }).join();
}

// One after the other they need few numbers: those of ended threads are used again, and what they
// counted stays.
TEST(OccupancyTest, NumbersOfEndedThreadsAreUsedAgain) {
  constexpr std::uint32_t threads = 4 * own_shards;
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  std::uint32_t highest = 0;
  for (std::uint32_t i = 0; i < threads; ++i) {
    std::jthread([&] {
      CUcontext context = nullptr;
      Seat* seat = nullptr;
      occupancy.enter(&context, &seat);
      occupancy.leave(seat);
      highest = std::max(highest, shard_of_this_thread());
    }).join();
  }
  EXPECT_LT(highest, own_shards);
  EXPECT_EQ(occupancy.inside(), 0);
  EXPECT_EQ(occupancy.entered(), threads);
}

// A thread that ends may enter once more, after its number has gone to another.
TEST(OccupancyTest, CountsOnAThreadThatHasGivenItsNumberBack) {
  static Occupancy* counted = nullptr;
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  counted = &occupancy;
  const auto count = [](void*) {
    CUcontext context = nullptr;
    Seat* seat = nullptr;
    counted->enter(&context, &seat);
    counted->leave(seat);
  };
  pthread_key_t later = 0;  // its destructor runs after that of an earlier key
  ASSERT_EQ(pthread_key_create(&later, count), 0);
  std::jthread([&] {
    count(nullptr);
    pthread_setspecific(later, &later);
  }).join();
  pthread_key_delete(later);
  EXPECT_EQ(occupancy.inside(), 0);
  EXPECT_EQ(occupancy.entered(), 2u);
}

}  // namespace
}  // namespace ctxbroker::detail
