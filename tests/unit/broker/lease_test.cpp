// SPDX-License-Identifier: Apache-2.0
#include "context/lease.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "context/lease_table.hpp"
#include "ctxbroker/error.hpp"
#include "fake_driver.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LeaseTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TenantIdentity> make_tenant() {
    return std::make_shared<const TenantIdentity>(next_tenant_id(), "blur", &recorder);
  }
  static LeaseRequest ask(LeaseKind kind) {
    LeaseRequest request;
    request.asked = LeaseChoice(kind);
    return request;
  }

  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
  Recorder recorder;
  TenantIdentity host{host_tenant, "host", &recorder};
  ProcessFault fault;
  LeaseTable leases{driver, host, fault};
};

TEST_F(LeaseTest, ADeviceIsNotTouchedBeforeItsFirstLease) {
  EXPECT_EQ(books.primary_retains, 0);
  EXPECT_EQ(books.calls, 0);
}

TEST_F(LeaseTest, TheBrokerItselfHoldsThePrimaryUntilItsEnd) {
  {
    LeaseTable table(driver, host, fault);
    auto lease = table.get(make_tenant(), ask(LeaseKind::shared));
    EXPECT_EQ(lease->info().granted.kind, LeaseKind::shared);
    auto other = table.get(make_tenant(), ask(LeaseKind::shared));
    lease.reset();
    other.reset();
    EXPECT_EQ(books.primary_retains, 1);
  }
  EXPECT_EQ(books.primary_retains, 0);
}

TEST_F(LeaseTest, PrivateMakesAndEndsAContextAndLeavesTheThreadAlone) {
  driver.table.ctx_push(fake_context(8));
  auto lease = leases.get(make_tenant(), ask(LeaseKind::private_own));
  EXPECT_EQ(books.contexts.size(), 1u);
  EXPECT_THAT(books.stack, testing::ElementsAre(fake_context(8)));
  lease.reset();
  EXPECT_THAT(books.contexts, IsEmpty());
  EXPECT_THAT(books.stack, testing::ElementsAre(fake_context(8)));
}

// The driver makes no context while it ends another one, and that waits for work.
TEST_F(LeaseTest, PrivateContextThatIsNotMadeInTimeIsTheNextLeases) {
  std::promise<void> end, made;
  leases.device(0).set_end_timeout(std::chrono::milliseconds(50));
  auto ending = leases.get(make_tenant(), ask(LeaseKind::private_own));
  const auto family = ending->family();
  books.destroy_until = end.get_future().share();
  books.create_until = made.get_future().share();
  ending.reset();
  EXPECT_EQ(family->put_off().size(), 1U);
  const auto tenant = make_tenant();
  try {
    leases.get(tenant, ask(LeaseKind::private_own));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable);
    EXPECT_THAT(error.what(), HasSubstr("a private context cannot be made"));
    EXPECT_THAT(error.what(), HasSubstr("while it ends another one"));
  }
  EXPECT_TRUE(leases.device(0).is_making_held_up());
  end.set_value();
  while (!family->idle()) std::this_thread::yield();
  made.set_value();
  while (leases.device(0).is_making_held_up()) std::this_thread::yield();
  EXPECT_EQ(leases.device(0).spares(LeaseKind::private_own), 1U);
  EXPECT_THAT(books.stack, IsEmpty());
  const auto lease = leases.get(tenant, ask(LeaseKind::private_own));
  EXPECT_EQ(books.contexts.count(lease->context()), 1U);
  EXPECT_EQ(books.contexts_made, 2) << "the one that came late";
}

// The context is another broker's. A device's first use makes its primary context.
TEST_F(LeaseTest, FirstUseOfADeviceIsRefusedInTimeWhileAContextEnds) {
  std::promise<void> end, made;
  LeaseTable others(driver, host, fault);
  for (LeaseTable* const table : {&leases, &others}) {
    table->device(0).set_end_timeout(std::chrono::milliseconds(50));
  }
  auto ending = others.get(make_tenant(), ask(LeaseKind::private_own));
  const auto family = ending->family();
  books.destroy_until = end.get_future().share();
  books.create_until = made.get_future().share();
  ending.reset();
  EXPECT_EQ(family->put_off().size(), 1U);
  try {
    leases.get(make_tenant(), ask(LeaseKind::shared));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable);
    EXPECT_THAT(error.what(), HasSubstr("the device's primary context cannot be made"));
  }
  EXPECT_FALSE(leases.device(0).in_use());
  end.set_value();
  while (!family->idle()) std::this_thread::yield();
  made.set_value();
  while (leases.device(0).is_making_held_up()) std::this_thread::yield();
  EXPECT_EQ(books.primary_retains, 1) << "what came late was given back";
  EXPECT_EQ(leases.get(make_tenant(), ask(LeaseKind::shared))->state(), LeaseState::ready);
}

// The machine may be too busy to make one within a short limit.
TEST_F(LeaseTest, PrivateContextIsWaitedForWhileNoOtherOneEnds) {
  constexpr std::chrono::milliseconds limit{20};
  std::promise<void> made;
  leases.device(0).set_end_timeout(limit);
  books.create_until = made.get_future().share();
  auto lease = std::async(std::launch::async,
                          [&] { return leases.get(make_tenant(), ask(LeaseKind::private_own)); });
  EXPECT_EQ(lease.wait_for(5 * limit), std::future_status::timeout);
  made.set_value();
  EXPECT_EQ(lease.get()->state(), LeaseState::ready);
}

TEST_F(LeaseTest, ATenantHasOneLeasePerDeviceAndTenantsShareNone) {
  const auto one = make_tenant(), other = make_tenant();
  const auto a = leases.get(one, ask(LeaseKind::private_own));
  const auto b = leases.get(one, ask(LeaseKind::shared));
  const auto c = leases.get(other, ask(LeaseKind::private_own));
  EXPECT_EQ(a, b) << "the lease in force, whatever is asked for later";
  EXPECT_NE(a->context(), c->context());
}

TEST_F(LeaseTest, EveryContextHasAGenerationOfItsOwn) {
  const auto tenant = make_tenant();
  const auto first = leases.get(tenant, ask(LeaseKind::shared))->info();
  const auto second = leases.get(tenant, ask(LeaseKind::shared))->info();
  EXPECT_EQ(first.context, second.context) << "the driver gives the same value again";
  EXPECT_GT(second.generation, first.generation);
}

TEST_F(LeaseTest, ADestroyedContextLosesItsLeaseAndTheNextUseMakesAnother) {
  const auto tenant = make_tenant(), neighbour = make_tenant();
  const auto lost = leases.get(tenant, ask(LeaseKind::private_own));
  const auto other = leases.get(neighbour, ask(LeaseKind::private_own));
  EXPECT_EQ(lost->report_status(CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(lost->lost());
  lost->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(lost->state(), LeaseState::lost);
  EXPECT_EQ(other->state(), LeaseState::ready);
  EXPECT_FALSE(lost->end_target(Home::memory)) << "gone with the context";
  const auto renewed = leases.get(tenant, ask(LeaseKind::private_own));
  EXPECT_GT(renewed->generation(), lost->generation());
}

TEST_F(LeaseTest, ADestroyedPrimaryLosesEveryLeaseThatStandsOnIt) {
  const auto one = make_tenant(), two = make_tenant(), three = make_tenant();
  const auto a = leases.get(one, ask(LeaseKind::shared));
  const auto b = leases.get(two, ask(LeaseKind::shared));
  const auto c = leases.get(three, ask(LeaseKind::private_own));
  a->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(a->state(), LeaseState::lost);
  EXPECT_EQ(b->state(), LeaseState::lost);
  EXPECT_EQ(c->state(), LeaseState::ready);
  const auto renewed = leases.get(two, ask(LeaseKind::shared));
  EXPECT_EQ(renewed->state(), LeaseState::ready);
  EXPECT_EQ(b->state(), LeaseState::lost) << "another life of the same handle";
}

TEST_F(LeaseTest, AFaultEndsEveryLeaseForGood) {
  const auto tenant = make_tenant();
  const auto a = leases.get(tenant, ask(LeaseKind::shared));
  const auto b = leases.get(make_tenant(), ask(LeaseKind::private_own));
  a->report_status(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(a->state(), LeaseState::ended);
  EXPECT_EQ(b->state(), LeaseState::ended);
  try {
    leases.get(tenant, ask(LeaseKind::shared));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::context_lost);
    EXPECT_THAT(error.what(), HasSubstr("CUDA has ended in this process after "
                                        "CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
}

TEST_F(LeaseTest, ContextOfAGivenUpLeaseIsGivenBack) {
  const auto tenant = make_tenant();
  auto lease = leases.get(tenant, ask(LeaseKind::private_own));
  lease->give_up("a test");
  EXPECT_EQ(lease->state(), LeaseState::lost);
  EXPECT_TRUE(lease->end_target(Home::context));
  lease.reset();
  EXPECT_THAT(books.contexts, IsEmpty());
}

TEST_F(LeaseTest, LeaseWithAThreadInsideForGoodIsNeverTouchedAgain) {
  const auto tenant = make_tenant();
  auto lease = leases.get(tenant, ask(LeaseKind::private_own));
  lease->leave_for_good();
  bool called = false;
  EXPECT_FALSE(lease->give_back({.call = [&] {
    called = true;
    return CUDA_SUCCESS;
  }}));
  EXPECT_FALSE(called);
  EXPECT_EQ(lease->state(), LeaseState::hung);
  EXPECT_THROW(leases.get(tenant, ask(LeaseKind::private_own)), Error);
  lease.reset();
  EXPECT_EQ(books.contexts.size(), 1u);
}

TEST_F(LeaseTest, MemoryWaitsForWorkOfItsTenantThatHangsOnAnotherDevice) {
  Driver two = driver;
  two.handles.push_back(1);
  two.devices.push_back(two.devices.front());
  LeaseRequest there = ask(LeaseKind::shared);
  there.device = 1;
  LeaseTable table(two, host, fault);
  const auto tenant = make_tenant(), neighbour = make_tenant();
  const auto here = table.get(tenant, ask(LeaseKind::private_own));
  const auto memory = table.get(tenant, there), others = table.get(neighbour, there);
  std::atomic<bool> ended{false}, freed{false};
  here->family()->add([&] { return ended.load(); });
  tenant->hung.add(0, here->family());
  const auto free = [&](const auto& lease) {
    return lease->give_back({.what = "device memory", .bytes = 12, .call = [&] {
                               freed = true;
                               return CUDA_SUCCESS;
                             }});
  };
  EXPECT_FALSE(free(memory));
  EXPECT_FALSE(freed);
  ASSERT_EQ(table.put_off().size(), 1U);
  EXPECT_EQ(table.put_off().front().tenant, tenant->id);
  EXPECT_EQ(table.put_off().front().what, "device memory");
  EXPECT_EQ(table.put_off().front().bytes, 12U);
  EXPECT_EQ(memory->state(), LeaseState::ready) << "its own work goes on";
  EXPECT_EQ(memory->give_back({.home = Home::context, .call = [] { return CUDA_SUCCESS; }}),
            CUDA_SUCCESS)
      << "streams are nobody's memory";
  EXPECT_EQ(others->give_back({.call = [] { return CUDA_SUCCESS; }}), CUDA_SUCCESS)
      << "a neighbour's";
  ended = true;
  while (!freed || !table.put_off().empty()) std::this_thread::yield();
}

TEST_F(LeaseTest, AnAbsentDeviceIsNamed) {
  LeaseRequest request = ask(LeaseKind::shared);
  request.device = 3;
  try {
    leases.get(make_tenant(), request);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_THAT(error.what(), HasSubstr("no device 3; the driver has device 0 only"));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
