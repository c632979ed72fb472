// SPDX-License-Identifier: Apache-2.0
// Contexts made ahead.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "context/lease_table.hpp"
#include "fake_driver.hpp"

namespace ctxbroker::detail {
namespace {

class ReadyContextsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Lease> lease(LeaseTable& table, LeaseKind kind) {
    LeaseRequest request;
    request.asked = LeaseChoice(kind);
    return table.get(std::make_shared<const TenantIdentity>(next_tenant_id(), "blur", &recorder),
                     request);
  }
  static constexpr std::uint64_t plenty = std::uint64_t{1} << 40;

  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
  std::vector<std::string> said;
  std::vector<Severity> how;
  Recorder recorder{[this](const Record& record) {
    if (std::string(record.topic) != "ready") return;
    said.push_back(record.text);
    how.push_back(record.severity);
  }};
  TenantIdentity host{host_tenant, "host", &recorder};
  ProcessFault fault;
};

TEST_F(ReadyContextsTest, ContextsAreMadeOnceADeviceIsInUseAndRefilled) {
  LeaseTable table(driver, host, fault, {0, 3, plenty});
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts.size(), 0u) << "the device is not in use";
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 3u);
  const auto before = books.contexts;
  const auto own = lease(table, LeaseKind::private_own);
  EXPECT_EQ(before.count(own->context()), 1u) << "one of those that stood ready";
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 3u);
  EXPECT_EQ(books.contexts.size(), 4u);
}

TEST_F(ReadyContextsTest, NoContextIsMadeInRealTime) {
  LeaseTable table(driver, host, fault, {0, 2, plenty});
  table.begin_realtime();
  table.begin_realtime();
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_FALSE(table.filler().wait_until_filled());
  table.end_realtime();
  EXPECT_FALSE(table.filler().wait_until_filled()) << "nested";
  EXPECT_EQ(books.contexts.size(), 0u);
  EXPECT_TRUE(table.end_realtime());
  EXPECT_FALSE(table.end_realtime()) << "one too many";
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts.size(), 2u);
}

TEST_F(ReadyContextsTest, WaitInRealTimeAnswersWhetherAllContextsAreReady) {
  books.bytes_per_context = 100;
  LeaseTable table(driver, host, fault, {0, 4, 250});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  table.begin_realtime();
  EXPECT_TRUE(table.filler().wait_until_filled()) << "as many as the budget allows";
  const auto same = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled()) << "a lease that took none of them";
  const auto own = lease(table, LeaseKind::private_own);
  EXPECT_FALSE(table.filler().wait_until_filled());
  table.end_realtime();
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 2u) << "there was room again";
}

// A driver in which the making of a context takes as long as the test wants.
struct SlowMaking {
  std::promise<void> begun, may_end;
  decltype(DriverTable::ctx_create) fakes = nullptr;
  std::atomic<int> made = 0;
};
SlowMaking* slow_making = nullptr;  // the driver's functions have no argument for it

CUresult make_slowly(CUcontext* context, unsigned int flags, CUdevice device) {
  if (slow_making->made == 0) {
    slow_making->begun.set_value();
    slow_making->may_end.get_future().wait();
  }
  const CUresult status = slow_making->fakes(context, flags, device);
  ++slow_making->made;
  return status;
}

TEST_F(ReadyContextsTest, RealTimeBeginsAfterTheContextInTheMaking) {
  SlowMaking slow;
  slow_making = &slow;
  slow.fakes = std::exchange(driver.table.ctx_create, make_slowly);
  LeaseTable table(driver, host, fault, {0, 3, plenty});
  const auto shared = lease(table, LeaseKind::shared);
  slow.begun.get_future().wait();
  std::promise<int> began;  // how many were made by then
  std::future<int> beginning = began.get_future();
  std::thread thread([&] {
    table.begin_realtime();
    began.set_value(slow.made);
  });
  EXPECT_EQ(beginning.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  slow.may_end.set_value();
  EXPECT_EQ(beginning.get(), 1);
  thread.join();
  EXPECT_FALSE(table.filler().wait_until_filled());
  EXPECT_EQ(slow.made, 1) << "and no further one";
  table.end_realtime();
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(slow.made, 3);
}

// The driver makes no context while it ends another one, and that waits for work.
TEST_F(ReadyContextsTest, NobodyWaitsForAContextThatIsNotMadeInTime) {
  std::promise<void> end, made;
  LeaseTable table(driver, host, fault, {0, 1, plenty});
  table.device(0).set_end_timeout(std::chrono::milliseconds(50));
  auto ending = lease(table, LeaseKind::private_own);
  const auto family = ending->family();
  EXPECT_TRUE(table.filler().wait_until_filled());
  books.destroy_until = end.get_future().share();
  books.create_until = made.get_future().share();
  ending.reset();
  EXPECT_EQ(family->put_off().size(), 1U);
  const auto own = lease(table, LeaseKind::private_own);  // the one that stood ready
  table.filler().wait_until_filled();
  table.begin_realtime();
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 0U);
  EXPECT_THAT(said, testing::IsEmpty());
  end.set_value();
  while (!family->idle()) std::this_thread::yield();
  made.set_value();
  while (table.device(0).is_making_held_up()) std::this_thread::yield();
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 1U) << "it came late";
  table.end_realtime();
}

TEST_F(ReadyContextsTest, ContextsStayWithinTheBudget) {
  books.bytes_per_context = 100;
  LeaseTable table(driver, host, fault, {0, 10, 350});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts.size(), 3u);
  EXPECT_THAT(said, testing::Contains(testing::HasSubstr("the budget of 350 bytes is used up")));
}

TEST_F(ReadyContextsTest, ContextBeyondTheBudgetIsGivenBackAndReportedOnce) {
  books.bytes_per_context = 100;
  LeaseTable table(driver, host, fault, {0, 2, 99});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  const auto another = lease(table, LeaseKind::shared);  // looked at again
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts.size(), 0u);
  EXPECT_EQ(books.contexts_made, 2) << "what one takes is known then, and the other made sure";
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(how[0], Severity::warning);
  EXPECT_EQ(said[0],
            "no private context is kept ready on device 0: one takes 100 bytes, but only 99 are "
            "left of the budget of 99; it was given back. Raise ReadyContexts::memory_budget (in "
            "C: ready_bytes), or ask for none");
}

// A plug-in may allocate just when one is made.
TEST_F(ReadyContextsTest, ContextThatSeemedTooLargeDoesNotEndTheFilling) {
  books.bytes_per_context = 100;
  books.bytes_of_others = 1000;
  LeaseTable table(driver, host, fault, {0, 2, 350});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts_made, 3);
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 2u);
  EXPECT_THAT(said, testing::IsEmpty());
}

TEST_F(ReadyContextsTest, NoContextIsMadeWithoutABudget) {
  books.bytes_per_context = 100;
  LeaseTable table(driver, host, fault, {0, 1, 0});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(books.contexts_made, 0);
}

// Memory that other code frees meanwhile hides how much a context takes.
TEST_F(ReadyContextsTest, ContextThatSeemedSmallDoesNotRaiseTheirNumber) {
  books.bytes_per_context = 100;
  LeaseTable table(driver, host, fault, {0, 10, 350});
  const auto shared = lease(table, LeaseKind::shared);
  EXPECT_TRUE(table.filler().wait_until_filled());
  books.bytes_per_context = 0;
  const auto own = lease(table, LeaseKind::private_own);
  EXPECT_TRUE(table.filler().wait_until_filled());
  EXPECT_EQ(table.device(0).spares(LeaseKind::private_own), 3u);
}

TEST_F(ReadyContextsTest, ReadyContextsEndWithTheBroker) {
  {
    LeaseTable table(driver, host, fault, {0, 2, plenty});
    const auto shared = lease(table, LeaseKind::shared);
    EXPECT_TRUE(table.filler().wait_until_filled());
  }
  EXPECT_EQ(books.contexts.size(), 0u);
  EXPECT_EQ(books.primary_retains, 0);
}

}  // namespace
}  // namespace ctxbroker::detail
