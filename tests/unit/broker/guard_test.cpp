// SPDX-License-Identifier: Apache-2.0
#include "context/guard_frame.hpp"

#include <gmock/gmock.h>

#include <cfenv>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GuardTest : public ::testing::Test {
 protected:
  GuardTarget in(int context) const {
    return {&driver.table, fake_context(context), static_cast<std::uint64_t>(context)};
  }
  GuardTarget nowhere() const { return {&driver.table, nullptr, 0}; }
  GuardedCall process() { return {&tenant, &strikes, "process"}; }
  void push(int context) { driver.table.ctx_push(fake_context(context)); }
  void pop() {
    CUcontext ignored = nullptr;
    driver.table.ctx_pop(&ignored);
  }

  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
  std::vector<std::string> said;
  Recorder recorder{[this](const Record& record) { said.push_back(record.text); }};
  TenantIdentity tenant{TenantId{7}, "blur", &recorder};
  std::atomic<std::uint64_t> strikes{0};
};

TEST_F(GuardTest, ContextIsCurrentInsideAndGoneOutside) {
  {
    const ContextGuard guard(in(1), process());
    EXPECT_EQ(guard.status(), CUDA_SUCCESS);
    EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  }
  EXPECT_THAT(books.stack, IsEmpty());
  EXPECT_EQ(strikes, 0u);
}

TEST_F(GuardTest, HidesAndRestoresTheThreadsOwnStack) {
  push(8);
  push(9);
  {
    const ContextGuard guard(in(1), process());
    EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8), fake_context(9)));
}

// More than a guard has room for, and more than it gets at first.
TEST_F(GuardTest, HidesAndRestoresADeepStack) {
  for (const int depth : {4, 5, 36, 37, 1000}) {
    books.stack.clear();
    for (int i = 0; i < depth; ++i) push(100 + i);
    const std::vector<CUcontext> before = books.stack;
    {
      const ContextGuard guard(in(1), process());
      EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
      push(7);
      const ContextGuard inner(in(2), process());
      EXPECT_THAT(books.stack, ElementsAre(fake_context(2)));
    }
    EXPECT_EQ(books.stack, before) << depth;
  }
}

TEST_F(GuardTest, GuardNestedInTheSameLeaseMakesOneCall) {
  const ContextGuard outer(in(1), process());
  const int before = books.calls;
  {
    const ContextGuard inner(in(1));
    EXPECT_EQ(books.calls - before, 1);
  }
  EXPECT_EQ(books.calls - before, 1);
  EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
}

TEST_F(GuardTest, SameHandleOfAnotherGenerationIsAnotherPlace) {
  const ContextGuard outer({&driver.table, fake_context(1), 5}, process());
  const int before = books.calls;
  {
    const ContextGuard inner({&driver.table, fake_context(1), 6}, process());
    EXPECT_GT(books.calls - before, 1);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
}

TEST_F(GuardTest, GuardNestedInAnotherLeaseRestoresTheOuterOne) {
  const ContextGuard outer(in(1), process());
  {
    const ContextGuard inner(in(2), process());
    EXPECT_THAT(books.stack, ElementsAre(fake_context(2)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  EXPECT_EQ(strikes, 0u);
}

TEST_F(GuardTest, RemovesWhatWasLeftAndNamesWhoLeftIt) {
  push(8);
  {
    const ContextGuard guard(in(1), process());
    push(2);
    push(3);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_EQ(strikes, 1u);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("process: left 2 context(s) pushed"));
}

TEST_F(GuardTest, PuttingTheSameContextOnTwiceIsNoticed) {
  {
    const ContextGuard outer(in(1), process());
    const ContextGuard plugin_call(in(1), process());
    push(1);
  }
  EXPECT_THAT(books.stack, IsEmpty());
  EXPECT_EQ(strikes, 1u);
}

TEST_F(GuardTest, PoppedContextIsRestoredAndStruck) {
  push(8);
  {
    const ContextGuard guard(in(1), process());
    pop();
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_EQ(strikes, 1u);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("popped"));
}

TEST_F(GuardTest, ANestedPluginCallIsRepairedBeforeTheOuterOneGoesOn) {
  const ContextGuard outer(in(1), process());
  {
    const ContextGuard plugin_call(in(1), process());
    pop();
    push(4);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  EXPECT_EQ(strikes, 1u);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("another context current"));
}

TEST_F(GuardTest, CallsWithoutContextFindNone) {
  push(8);
  {
    const ContextGuard guard(nowhere(), process());
    EXPECT_THAT(books.stack, IsEmpty());
    push(3);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_EQ(strikes, 1u);
}

TEST_F(GuardTest, AFailedEnterLeavesTheThreadAsItWas) {
  push(8);
  books.push_status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  {
    const ContextGuard guard(in(1), process());
    EXPECT_EQ(guard.status(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    books.push_status = CUDA_SUCCESS;
  }
  EXPECT_EQ(strikes, 0u);
}

TEST_F(GuardTest, FailedRestoreIsReportedAndTheNextGuardWorks) {
  push(8);
  {
    const ContextGuard guard(in(1), process());
    books.push_status = CUDA_ERROR_OUT_OF_MEMORY;
  }
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("could not be restored: CUDA_ERROR_OUT_OF_MEMORY"));
  books.push_status = CUDA_SUCCESS;
  const ContextGuard again(in(1), process());  // the thread's frames are sound
  EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
}

TEST_F(GuardTest, AfterAFaultOfTheProcessNoGuardAddsToWhatIsSaid) {
  push(8);
  {
    const ContextGuard guard(in(1), process());
    books.push_status = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  EXPECT_THAT(said, IsEmpty());
}

TEST_F(GuardTest, ExitOfTheProcessIsNoError) {
  push(8);
  {
    const ContextGuard guard(in(1), process());
    books.push_status = CUDA_ERROR_DEINITIALIZED;
  }
  EXPECT_THAT(said, IsEmpty());
}

TEST_F(GuardTest, ExceptionLeavesTheGuard) {
  push(8);
  try {
    const ContextGuard guard(in(1), process());
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
}

TEST_F(GuardTest, CallableFormGivesTheWorksStatusOrItsOwn) {
  EXPECT_EQ(guarded(in(1), {}, [] { return CUDA_ERROR_NOT_FOUND; }), CUDA_ERROR_NOT_FOUND);
  books.push_status = CUDA_ERROR_INVALID_CONTEXT;
  bool ran = false;
  const auto work = [&] { return ran = true, CUDA_SUCCESS; };
  EXPECT_EQ(guarded(in(1), {}, work), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_FALSE(ran);
}

TEST_F(GuardTest, FrameOwnerIsTheGuardsTenantUnlessTheHostCalls) {
  EXPECT_FALSE(frame_owner().decided);
  const ContextGuard guard(in(1), process());
  EXPECT_EQ(frame_owner().tenant, &tenant);
  {
    const HostFrame host;
    EXPECT_TRUE(frame_owner().decided);
    EXPECT_EQ(frame_owner().tenant, nullptr);
  }
  EXPECT_EQ(frame_owner().tenant, &tenant);
}

TEST_F(GuardTest, HostInsideComputesAsBeforeThePlugin) {
  {
    const ContextGuard guard(in(1), process());
    std::fesetround(FE_UPWARD);
    {
      const HostFrame host;
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      {
        const ContextGuard next(in(2), {&tenant, &strikes, "process"});
        std::fesetround(FE_DOWNWARD);
        const HostFrame again;
        EXPECT_EQ(std::fegetround(), FE_TONEAREST);
      }
      EXPECT_EQ(strikes, 1u) << "the inner plug-in's change";
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
    EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the plug-in's own, until its call ends";
  }
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(strikes, 2u);
}

TEST_F(GuardTest, GuardWithoutADriverDoesNothing) {
  const int before = books.calls;
  { const ContextGuard guard({}, process()); }
  EXPECT_EQ(books.calls, before);
}

// Tests guards on threads that the gate watches. The gate reports each change that it sees, and
// guards look at nothing else.
class WatchedGuardTest : public GuardTest {
 protected:
  WatchedGuardTest() {
    driver.table.current_is_watched = true;
    current_may_have_changed();
  }
  void TearDown() override {
    EXPECT_FALSE(frame_owner().decided);
    current_may_have_changed();
  }
  // The thread's own contexts are there, and a guard has looked.
  void know(const std::vector<int>& contexts) {
    for (const int context : contexts) push(context);
    const ContextGuard looks(in(1), process());
  }
  // Seen by the gate, as a call through it is.
  void seen_push(int context) {
    current_may_have_changed();
    push(context);
  }
  void seen_pop() {
    current_may_have_changed();
    pop();
  }
};

TEST_F(WatchedGuardTest, KnownContextOfAThreadStaysBelowTheGuard) {
  for (const std::vector<int>& own : {std::vector<int>{}, {8}, {1}}) {
    SCOPED_TRACE(own.size());
    books.stack.clear();
    current_may_have_changed();
    know(own);
    const std::vector<CUcontext> before = books.stack;
    const int calls = books.calls;
    {
      const ContextGuard guard(in(1), process());
      ASSERT_EQ(books.stack.back(), fake_context(1));
      EXPECT_EQ(books.stack.size(), before.size() + 1);
    }
    EXPECT_EQ(books.stack, before);
    EXPECT_EQ(books.calls - calls, own.empty() ? 2 : 3);
  }
  EXPECT_EQ(strikes, 0u);
}

// A Guard makes this check before it enters the lease.
TEST_F(WatchedGuardTest, ThreadIsInsideOnlyTheGuardsLease) {
  know({});
  EXPECT_FALSE(is_inside(1, &tenant)) << "no guard";
  const ContextGuard guard(in(1), process());
  int calls = books.calls;
  EXPECT_TRUE(is_inside(1, &tenant));
  EXPECT_FALSE(is_inside(2, &tenant));
  {
    const ContextGuard nested(in(1), process());
    EXPECT_TRUE(is_inside(1, &tenant));
  }
  EXPECT_EQ(books.calls, calls) << "nothing was touched";
  {
    const HostFrame host;
    EXPECT_FALSE(is_inside(1, &tenant)) << "the host's code runs";
  }
  seen_push(9);
  EXPECT_FALSE(is_inside(1, &tenant)) << "another context is current";
  seen_pop();
  calls = books.calls;
  EXPECT_TRUE(is_inside(1, &tenant));
  EXPECT_EQ(books.calls, calls + 1) << "the driver was asked";
}

// No depth defeats the guard, whether the gate sees the pushes or not.
TEST_F(WatchedGuardTest, StackIsPutBackHoweverDeepItWasLeft) {
  constexpr int depth = 20'000;
  for (const bool seen : {false, true}) {
    for (const int pushed : {1, 4}) {
      SCOPED_TRACE(std::string(seen ? "seen " : "unseen ") + std::to_string(pushed));
      books.stack.clear();
      current_may_have_changed();
      know({8});
      strikes = 0;
      said.clear();
      {
        const ContextGuard guard(in(1), process());
        if (seen) current_may_have_changed();
        for (int i = 0; i < depth; ++i) push(pushed);
        ASSERT_GE(books.stack.size(), std::size_t{depth}) << "the control";
      }
      EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
      EXPECT_EQ(strikes, 1u);
    }
  }
}

TEST_F(WatchedGuardTest, ContextsBetweenTwoOfTheGuardsOwnAreCounted) {
  know({8});
  {
    const ContextGuard guard(in(1), process());
    for (const int context : {4, 5, 1, 6}) push(context);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_THAT(said, ElementsAre(HasSubstr("left 4 context(s) pushed")));
}

TEST_F(WatchedGuardTest, ThreadWithADeepStackOfItsOwnGetsItBack) {
  know(std::vector<int>(20'000, 8));
  const std::vector<CUcontext> before = books.stack;
  {
    const ContextGuard guard(in(1), process());
    EXPECT_EQ(guard.status(), CUDA_SUCCESS);
    EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  }
  EXPECT_EQ(books.stack, before);
  EXPECT_EQ(strikes, 0u);
}

// One is taken away as ever: there is no room to remember more.
TEST_F(WatchedGuardTest, TwoContextsOfAThreadAreTakenAwayAndRestored) {
  know({8, 9});
  {
    const ContextGuard guard(in(1), process());
    EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8), fake_context(9)));
}

TEST_F(WatchedGuardTest, ThreadsContextIsTakenAwayBeforeCodeInsideReachesIt) {
  for (const int own : {8, 1}) {
    books.stack.clear();
    current_may_have_changed();
    strikes = 0;
    know({own});
    {
      const ContextGuard guard(in(1), process());
      current_may_have_changed();
      EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
      pop();
      EXPECT_THAT(books.stack, IsEmpty());
    }
    EXPECT_THAT(books.stack, ElementsAre(fake_context(own)));
    EXPECT_EQ(strikes, 1u);
    // Balanced, it is no breach.
    {
      const ContextGuard guard(in(1), process());
      seen_push(5);
      seen_pop();
    }
    EXPECT_THAT(books.stack, ElementsAre(fake_context(own)));
    EXPECT_EQ(strikes, 1u);
  }
}

// By ways that the gate does not see.
TEST_F(WatchedGuardTest, UnseenChangesOfTheStackAreRepaired) {
  struct Case {
    const char* name;
    int pops;
    std::vector<int> pushes;
  };
  const Case cases[] = {{"one pop", 1, {}},          {"two pops", 2, {}},
                        {"one push", 0, {4}},        {"its own again", 0, {1}},
                        {"another instead", 1, {4}}, {"another instead of all", 2, {4, 5}}};
  for (const int own : {8, 1}) {
    for (const Case& one : cases) {
      SCOPED_TRACE(std::string(one.name) + " over " + std::to_string(own));
      // From the top that looks like what is to be there.
      if (own == 1 && one.pops == 0 && one.pushes == std::vector{1}) continue;
      books.stack.clear();
      current_may_have_changed();
      know({own});
      strikes = 0;
      {
        const ContextGuard guard(in(1), process());
        for (int i = 0; i < one.pops; ++i) pop();
        for (const int context : one.pushes) push(context);
      }
      EXPECT_THAT(books.stack, ElementsAre(fake_context(own)));
      EXPECT_EQ(strikes, 1u);
    }
  }
}

// A host that reaches the driver past the gate finds its own contexts all the same.
TEST_F(WatchedGuardTest, ContextsThatTheHostChangedUnseenAreRestored) {
  know({8});
  books.stack = {fake_context(6), fake_context(7)};
  { const ContextGuard guard(in(1), process()); }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(6), fake_context(7)));
  {
    const ContextGuard guard(in(1), process());
    push(4);
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(6), fake_context(7)));
  EXPECT_EQ(strikes, 1u);
}

TEST_F(WatchedGuardTest, GuardOfAnotherLeaseInsideHidesTheWholeStack) {
  know({8});
  {
    const ContextGuard guard(in(1), process());
    {
      const ContextGuard other(in(2), process());
      EXPECT_THAT(books.stack, ElementsAre(fake_context(2)));
      seen_push(5);
    }
    EXPECT_EQ(books.stack.back(), fake_context(1));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_EQ(strikes, 1u);
}

TEST_F(WatchedGuardTest, ANestedCallIsRepairedOverAThreadsOwnContext) {
  know({8});
  {
    const ContextGuard outer(in(1), process());
    {
      const ContextGuard plugin_call(in(1), process());
      seen_pop();
      push(4);
    }
    EXPECT_THAT(books.stack, ElementsAre(fake_context(1)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  EXPECT_EQ(strikes, 1u);
}

TEST_F(WatchedGuardTest, AFailedEnterLeavesAKnownThreadAsItWas) {
  know({8});
  books.push_status = CUDA_ERROR_INVALID_CONTEXT;
  {
    const ContextGuard guard(in(1), process());
    EXPECT_EQ(guard.status(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8)));
}

// The control: the same damage without a guard stays.
TEST_F(GuardTest, StackDamageStaysWithoutAGuard) {
  push(8);
  pop();
  push(2);
  push(3);
  EXPECT_THAT(books.stack, ElementsAre(fake_context(2), fake_context(3)));
}

// Without the gate, nothing tells the broker that the host has pushed a context of its own.
TEST_F(GuardTest, WhatTheHostPushedAboveAnAbandonedGuardStays) {
  push(8);
  GuardFrame& outer = *take_guard_frame();
  ASSERT_EQ(enter(&outer.frame, in(1), process()), CUDA_SUCCESS);
  outer.frame.is_hosts = true;
  std::thread([&] { end_guard(outer); }).join();
  push(9);
  {
    const ContextGuard next(in(2), process());
    EXPECT_THAT(books.stack, ElementsAre(fake_context(2)));
  }
  EXPECT_THAT(books.stack, ElementsAre(fake_context(8), fake_context(9)));
  EXPECT_EQ(strikes, 0u);
}

}  // namespace
}  // namespace ctxbroker::detail
