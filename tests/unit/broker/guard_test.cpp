#include "context/guard.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <string>
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

TEST_F(GuardTest, IsCurrentInsideAndGoneOutside) {
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

TEST_F(GuardTest, NestedInTheSameLeaseCostsOneLook) {
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

TEST_F(GuardTest, NestedInAnotherLeaseAndBack) {
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

TEST_F(GuardTest, RestoresWhatWasPopped) {
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

TEST_F(GuardTest, ARestoreThatFailsIsSaidAndGoesOn) {
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

TEST_F(GuardTest, LeavesOnAnException) {
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

TEST_F(GuardTest, KnowsWhoseCodeRuns) {
  EXPECT_EQ(running_tenant(), host_tenant);
  const ContextGuard guard(in(1), process());
  EXPECT_EQ(running_tenant(), tenant.id);
  {
    const HostFrame host;
    EXPECT_EQ(running_tenant(), host_tenant);
  }
  EXPECT_EQ(running_tenant(), tenant.id);
}

TEST_F(GuardTest, WithoutADriverItDoesNothing) {
  const int before = books.calls;
  { const ContextGuard guard({}, process()); }
  EXPECT_EQ(books.calls, before);
}

// The control: the same damage without a guard stays.
TEST_F(GuardTest, WithoutAGuardTheDamageShows) {
  push(8);
  pop();
  push(2);
  push(3);
  EXPECT_THAT(books.stack, ElementsAre(fake_context(2), fake_context(3)));
}

}  // namespace
}  // namespace ctxbroker::detail
