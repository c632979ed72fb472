// SPDX-License-Identifier: Apache-2.0
#include "context/lease_users.hpp"
#include "context/borrowers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace ctxbroker::detail {
namespace {

CUcontext context_number(int number) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(number + 1));
}

// Runs `work` inside, as a guard does; false when the calling thread cannot enter.
bool inside(
    LeaseUsers& users, const std::function<void(CUcontext)>& work = [](CUcontext) {}) {
  thread_local int guards = 0;
  LeaseSlot* slot = guards == 0 ? users.enter_again() : nullptr;
  if (slot == nullptr && users.enter(&slot, guards == 0) != CUDA_SUCCESS) return false;
  ++guards;
  work(slot->context);
  --guards;
  LeaseUsers::leave(*slot);
  return true;
}

bool inside_on_another_thread(LeaseUsers& users) {
  bool entered = false;
  std::jthread([&] { entered = inside(users); }).join();
  return entered;
}

// Long enough that threads which must not meet would.
void linger() {
  for (int i = 0; i < 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// A lease whose slots have contexts of their own, made as they are needed.
struct Green {
  std::atomic<int> made{1};
  int most = 1 << 20;              // beyond it the device has no memory
  std::atomic<bool> hangs{false};  // the driver waits for work that hangs, and makes no context
  std::atomic<int> reports{0};
  LeaseUsers users;

  explicit Green(std::chrono::milliseconds limit = {})
      : users(context_number(0),
              {.limit = limit, .make = make, .report_full = report_full, .self = this}) {}

  static CUresult make(void* self, CUgreenCtx* green, CUcontext* context,
                       std::chrono::steady_clock::time_point) {
    auto& here = *static_cast<Green*>(self);
    if (here.made == here.most) return CUDA_ERROR_OUT_OF_MEMORY;
    if (here.hangs) return CUDA_ERROR_NOT_READY;
    *green = nullptr;
    *context = context_number(here.made++);
    return CUDA_SUCCESS;
  }
  static void report_full(void* self) { ++static_cast<Green*>(self)->reports; }
};

TEST(LeaseUsersTest, CountsTheThreadsInsideAndHowOftenTheyEntered) {
  constexpr int threads = 100, rounds = 1000;
  LeaseUsers users(context_number(0));
  std::barrier together(threads + 1);
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) ASSERT_TRUE(inside(users));
      ASSERT_TRUE(inside(users, [&](CUcontext context) {
        EXPECT_EQ(context, context_number(0));
        together.arrive_and_wait();  // all are inside
        together.arrive_and_wait();
      }));
    });
  }
  together.arrive_and_wait();
  EXPECT_EQ(users.inside(), std::size_t{threads});
  together.arrive_and_wait();
  all.clear();
  EXPECT_EQ(users.inside(), 0u);
  EXPECT_EQ(users.entered(), std::uint64_t{threads} * (rounds + 1));
}

TEST(LeaseUsersTest, ClosedUsersLetOnlyTheClosingThreadIn) {
  LeaseUsers users(context_number(0));
  EXPECT_TRUE(inside(users, [&](CUcontext) { EXPECT_FALSE(users.close()) << "it is inside"; }));
  EXPECT_TRUE(inside_on_another_thread(users)) << "everything is as before";
  ASSERT_TRUE(users.close());
  EXPECT_FALSE(users.is_open());
  EXPECT_FALSE(inside_on_another_thread(users));
  EXPECT_TRUE(inside(users));
  EXPECT_FALSE(inside_on_another_thread(users)) << "also when the closing thread has left";
  users.reopen();
  EXPECT_TRUE(inside_on_another_thread(users));
  ASSERT_TRUE(users.close());
  users.close_for_good();
  EXPECT_FALSE(inside(users));
  EXPECT_FALSE(inside_on_another_thread(users));
  EXPECT_EQ(users.inside(), 0u);
}

TEST(LeaseUsersTest, UsersCloseBeforeAnybodyHasEntered) {
  LeaseUsers users(context_number(0));
  ASSERT_TRUE(users.close());
  EXPECT_FALSE(inside_on_another_thread(users));
  EXPECT_TRUE(inside(users));
  EXPECT_FALSE(inside_on_another_thread(users));
  users.reopen();
  EXPECT_TRUE(inside_on_another_thread(users));
}

// Eight threads enter while another one closes and reopens. Returns how often a thread was inside
// while it was closed.
int entries_while_closed(int closes, const std::function<bool(LeaseUsers&)>& close,
                         const std::function<void(LeaseUsers&)>& reopen,
                         std::chrono::seconds limit) {
  LeaseUsers users(context_number(0));
  std::atomic<bool> closed{false}, over{false};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        while (!over) {
          inside(users, [&](CUcontext) {
            linger();
            if (closed.load(std::memory_order_relaxed)) ++wrong;
          });
          std::this_thread::yield();
        }
      });
    }
    const auto end = std::chrono::steady_clock::now() + limit;
    for (int done = 0; done < closes && std::chrono::steady_clock::now() < end;) {
      if (!close(users)) {
        std::this_thread::yield();
        continue;
      }
      ++done;
      closed.store(true, std::memory_order_relaxed);
      linger();
      closed.store(false, std::memory_order_release);
      reopen(users);
      if (wrong != 0) break;
    }
    over = true;
  }
  return wrong;
}

TEST(LeaseUsersTest, NobodyIsInsideClosedUsers) {
  EXPECT_EQ(entries_while_closed(
                10'000, [](LeaseUsers& users) { return users.close(); },
                [](LeaseUsers& users) { users.reopen(); }, std::chrono::seconds(90)),
            0);
}

// The control: a look at who is inside, without closing first, is not enough.
TEST(LeaseUsersTest, SomebodyIsInsideUsersThatWereNotClosed) {
  EXPECT_GT(entries_while_closed(
                1 << 30, [](LeaseUsers& users) { return users.inside() == 0; }, [](LeaseUsers&) {},
                std::chrono::seconds(90)),
            0);
}

TEST(GreenLeaseUsersTest, OneThreadAtATimeIsInOneContext) {
  for (const int threads : {2, 3, 8, 40}) {
    Green green;
    std::vector<std::atomic<int>> in_context(LeaseUsers::most_slots + 1);
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> all;
      for (int i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
          for (int round = 0; round < 2000; ++round) {
            inside(green.users, [&](CUcontext context) {
              std::atomic<int>& here = in_context[reinterpret_cast<std::uintptr_t>(context)];
              if (here.fetch_add(1) != 0) ++wrong;
              linger();
              here.fetch_sub(1);
            });
            if (round % 64 == i) std::this_thread::yield();
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0) << threads;
    EXPECT_EQ(green.users.inside(), 0u);
    EXPECT_LE(green.made, threads);
  }
}

// A thread's first guard may be one that does not look for the thread's last slot.
TEST(GreenLeaseUsersTest, TheFirstGuardsOfThreadsMeetInNoContext) {
  Green green;
  EXPECT_TRUE(inside(green.users)) << "there is a slot, and it is free";
  std::vector<CUcontext> seen(4);
  std::barrier together(static_cast<std::ptrdiff_t>(seen.size()));
  {
    std::vector<std::jthread> threads;
    for (CUcontext& context : seen) {
      threads.emplace_back([&] {
        LeaseSlot* slot = nullptr;
        EXPECT_EQ(green.users.enter(&slot, true), CUDA_SUCCESS);
        context = slot->context;
        together.arrive_and_wait();
        LeaseUsers::leave(*slot);
      });
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(GreenLeaseUsersTest, ThreadsThatTakeTurnsNeedOneContext) {
  Green green;
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(inside_on_another_thread(green.users));
    EXPECT_TRUE(inside(green.users));
  }
  EXPECT_EQ(green.made, 1);
  // The control: two threads at once need two.
  EXPECT_TRUE(inside(green.users, [&](CUcontext) { inside_on_another_thread(green.users); }));
  EXPECT_EQ(green.made, 2);
}

TEST(GreenLeaseUsersTest, AThreadThatIsInsideEntersTheSameContextAgain) {
  Green green;
  EXPECT_TRUE(inside(green.users, [&](CUcontext outer) {
    EXPECT_TRUE(inside(green.users, [&](CUcontext inner) { EXPECT_EQ(inner, outer); }));
    EXPECT_TRUE(inside_on_another_thread(green.users));
    EXPECT_EQ(green.made, 2) << "the outer guard still owns the first";
  }));
}

// Fills a lease with threads that stay inside until `let_go`.
class Crowd {
 public:
  Crowd(LeaseUsers& users, std::size_t threads)
      : arrived_(static_cast<std::ptrdiff_t>(threads + 1)) {
    for (std::size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &users] {
        EXPECT_TRUE(inside(users, [this](CUcontext) {
          arrived_.arrive_and_wait();
          go_.wait(false);
        }));
      });
    }
    arrived_.arrive_and_wait();
  }
  ~Crowd() { let_go(); }
  void let_go() {
    go_ = true;
    go_.notify_all();
  }

 private:
  std::barrier<> arrived_;
  std::atomic<bool> go_{false};
  std::vector<std::jthread> threads_;
};

// True when a thread that tries to enter is still waiting after a while; `crowd` leaves then, and
// the thread gets in.
bool waits_for(Crowd& crowd, LeaseUsers& users) {
  std::atomic<bool> entered{false};
  std::jthread waiting([&] { entered = inside(users); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool waited = !entered;
  crowd.let_go();
  waiting.join();
  EXPECT_TRUE(entered);
  return waited;
}

TEST(GreenLeaseUsersTest, BeyondTheLimitAThreadWaitsUntilAnotherLeaves) {
  Green green;
  Crowd crowd(green.users, LeaseUsers::most_green_contexts);
  EXPECT_TRUE(waits_for(crowd, green.users));
  EXPECT_EQ(green.made, static_cast<int>(LeaseUsers::most_green_contexts));
}

TEST(GreenLeaseUsersTest, WithoutMemoryForAContextAThreadWaitsUntilAnotherLeaves) {
  Green green;
  green.most = 3;
  Crowd crowd(green.users, 3);
  EXPECT_TRUE(waits_for(crowd, green.users));
  EXPECT_EQ(green.made, 3);
}

// Two threads that own a slot each, and wait for the other's lease, would wait for ever.
TEST(GreenLeaseUsersTest, AThreadThatIsInAnotherLeaseNeverWaits) {
  Green green;
  LeaseUsers other(context_number(0));
  Crowd crowd(green.users, LeaseUsers::most_green_contexts);
  EXPECT_TRUE(inside(other, [&](CUcontext) { EXPECT_TRUE(inside(green.users)); }));
  EXPECT_EQ(green.made, static_cast<int>(LeaseUsers::most_green_contexts) + 1);
}

TEST(GreenLeaseUsersTest, TheFirstContextIsShownAndTheOthersAreFound) {
  Green green;
  { const Crowd crowd(green.users, 3); }
  EXPECT_EQ(green.users.context(), context_number(0));
  for (int number = 0; number < 3; ++number) {
    EXPECT_TRUE(green.users.has_context(context_number(number)));
    std::vector<CUcontext> others;
    green.users.for_each_other(context_number(number),
                               [&](CUcontext other) { others.push_back(other); });
    EXPECT_EQ(others.size(), 2U);
    EXPECT_EQ(std::count(others.begin(), others.end(), context_number(number)), 0);
  }
  EXPECT_FALSE(green.users.has_context(context_number(3)));
  LeaseUsers one_context(context_number(0));
  EXPECT_TRUE(inside(one_context));
  EXPECT_TRUE(inside_on_another_thread(one_context));
  one_context.for_each_other(context_number(0), [](CUcontext) { ADD_FAILURE(); });
}

// How a thread that may wait enters, and how long that takes.
struct Entry {
  CUresult status = CUDA_SUCCESS;
  std::chrono::milliseconds took{0};
};
Entry entry_of_another_thread(LeaseUsers& users, bool may_wait) {
  Entry entry;
  std::jthread([&] {
    LeaseSlot* slot = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    entry.status = users.enter(&slot, may_wait);
    entry.took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    if (entry.status == CUDA_SUCCESS) LeaseUsers::leave(*slot);
  }).join();
  return entry;
}

constexpr std::chrono::milliseconds entry_limit{100};

TEST(GreenLeaseUsersTest, WaitForASlotEndsAfterTheLimitAndIsReported) {
  Green green(entry_limit);
  Crowd crowd(green.users, LeaseUsers::most_green_contexts);
  const Entry entry = entry_of_another_thread(green.users, true);
  EXPECT_EQ(entry.status, no_slot);
  EXPECT_GE(entry.took, entry_limit);
  EXPECT_LT(entry.took, 20 * entry_limit);
  EXPECT_EQ(green.reports, 1);
  crowd.let_go();
}

TEST(LeaseUsersTest, WaitForASlotEndsAfterTheLimitWithOneContextForAll) {
  LeaseUsers users(context_number(0), {.limit = entry_limit});
  Crowd crowd(users, LeaseUsers::most_slots);
  EXPECT_EQ(entry_of_another_thread(users, true).status, no_slot);
  EXPECT_EQ(entry_of_another_thread(users, false).status, CUDA_ERROR_OUT_OF_MEMORY);
  crowd.let_go();
}

TEST(GreenLeaseUsersTest, WaitForASlotEndsAfterTheLimitWhenNoContextCanBeMade) {
  for (const bool hangs : {false, true}) {
    Green green(entry_limit);
    green.most = hangs ? green.most : 1;
    green.hangs = hangs;
    Crowd crowd(green.users, 1);
    EXPECT_EQ(entry_of_another_thread(green.users, true).status, no_slot);
    EXPECT_EQ(entry_of_another_thread(green.users, false).status,
              hangs ? no_slot : CUDA_ERROR_OUT_OF_MEMORY);
    crowd.let_go();
  }
}

// No lock is held while the driver makes a context.
TEST(GreenLeaseUsersTest, AThreadThatMakesAContextHoldsUpNobodyWhoNeedsNone) {
  struct Slow {
    std::atomic<bool> makes{false}, go{false};
  } slow;
  const auto make = [](void* self, CUgreenCtx*, CUcontext* context,
                       std::chrono::steady_clock::time_point) {
    auto& here = *static_cast<Slow*>(self);
    here.makes = true;
    here.makes.notify_all();
    here.go.wait(false);
    *context = context_number(1);
    return CUDA_SUCCESS;
  };
  LeaseUsers users(context_number(0), {.make = make, .self = &slow});
  std::jthread second;
  EXPECT_TRUE(inside(users, [&](CUcontext) {
    second = std::jthread([&] { EXPECT_TRUE(inside(users)); });
    slow.makes.wait(false);
    EXPECT_TRUE(users.is_open());
    EXPECT_FALSE(users.close()) << "a thread is about to be inside";
  }));
  EXPECT_EQ(entry_of_another_thread(users, true).status, CUDA_SUCCESS) << "the first slot is free";
  EXPECT_FALSE(users.close());
  slow.go = true;
  slow.go.notify_all();
  second.join();
  EXPECT_TRUE(users.close());
  users.close_for_good();
}

TEST(GreenLeaseUsersTest, AFailedContextIsAnErrorAndNothingIsEntered) {
  LeaseUsers users(context_number(0), {.make = [](void*, CUgreenCtx*, CUcontext*,
                                                  std::chrono::steady_clock::time_point) {
                     return CUDA_ERROR_LAUNCH_FAILED;
                   }});
  EXPECT_TRUE(inside(users, [&](CUcontext) {
    std::jthread([&] {
      LeaseSlot* slot = nullptr;
      EXPECT_EQ(users.enter_again(), nullptr);
      EXPECT_EQ(users.enter(&slot, true), CUDA_ERROR_LAUNCH_FAILED);
    }).join();
  }));
  EXPECT_EQ(users.inside(), 0u);
  EXPECT_TRUE(users.close());
  users.close_for_good();
}

TEST(BorrowersTest, ContextIsBorrowedUntilItLeavesTheStackOrTheThreadEnds) {
  const auto lease = std::make_shared<Borrowers>(0), other = std::make_shared<Borrowers>(0);
  CUcontext const first = context_number(1), second = context_number(2);
  std::jthread([&] {
    borrow_pushed(first, BorrowClaim(lease));
    borrow_pushed(second, BorrowClaim(other));
    borrow_pushed(first, BorrowClaim(lease));
    EXPECT_EQ(*lease, 2) << "pushed twice";
    give_back_popped(first);
    EXPECT_EQ(*lease, 1);
    EXPECT_FALSE(close_to_borrowers(*lease));
    borrow_instead(second, nullptr, {});
    EXPECT_EQ(*other, 0);
    borrow_pushed(second, BorrowClaim(other));
    give_back_popped(first);
    EXPECT_EQ(*other, 0) << "it lay above and was popped unseen";
    EXPECT_FALSE(borrows_on_this_thread());
    borrow_pushed(first, BorrowClaim(lease));
  }).join();
  EXPECT_EQ(*lease, 0) << "the thread has ended";
}

TEST(BorrowersTest, ClaimThatIsNotUsedBorrowsNothing) {
  const auto lease = std::make_shared<Borrowers>(0);
  {
    const BorrowClaim claim(lease);
    EXPECT_TRUE(claim.holds());
    EXPECT_FALSE(close_to_borrowers(*lease));
  }
  EXPECT_TRUE(close_to_borrowers(*lease));
  EXPECT_FALSE(BorrowClaim(lease).holds()) << "the contexts have ended";
  EXPECT_EQ(*lease, -1);
  reopen_to_borrowers(*lease);
  EXPECT_TRUE(BorrowClaim(lease).holds());
}

}  // namespace
}  // namespace ctxbroker::detail
