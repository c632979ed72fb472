// SPDX-License-Identifier: Apache-2.0
// Tenants that a host opens itself, for plug-ins with a format of their own.
#include "ctxbroker/tenant.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class TenantTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  TenantTest() : driver(broker.driver().path) {}
  Tenant open(const char* name = "filter") {
    return broker.open_tenant(name, {LeaseChoice(GetParam())});
  }
  RawDriver driver;
};

TEST_P(TenantTest, AGuardPutsTheThreadIntoTheLeaseAndOutAgain) {
  CUcontext own = driver.make_context();
  const auto before = driver.stack();
  Tenant tenant = open();
  {
    const Guard guard(tenant);
    EXPECT_EQ(driver.current(), tenant.lease().context);
    EXPECT_EQ(driver.stack().size(), 1u);
    const Guard nested(tenant);
    EXPECT_EQ(driver.stack().size(), 1u);
  }
  EXPECT_EQ(driver.stack(), before);
  EXPECT_EQ(tenant.run(0, [&] { return driver.current(); }), tenant.lease().context);
  driver.pop_all();
  driver.destroy_context(own);
}

TEST_P(TenantTest, TwoTenantsOnOneDeviceHaveSeparateLeases) {
  Tenant one = open("one"), two = open("two");
  const Guard outer(one);
  CUcontext first = driver.current();
  {
    const Guard inner(two);
    EXPECT_EQ(driver.current(), two.lease().context);
    const Guard again(one);
    EXPECT_EQ(driver.current(), first);
  }
  EXPECT_EQ(driver.current(), first);
  EXPECT_NE(one.lease().generation, two.lease().generation);
  EXPECT_EQ(GetParam() == LeaseKind::shared, one.lease().context == two.lease().context);
}

TEST_P(TenantTest, ContextStackChangedInRunIsRepairedAndStruck) {
  Tenant tenant = open();
  tenant.run(0, [&] { driver.push(tenant.lease().context); });
  EXPECT_EQ(driver.current(), nullptr);
  EXPECT_EQ(tenant.strikes(), 1u);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("run: left 1 context(s) pushed")));
}

// Libraries do so to give a device back: numba.cuda.close() is one.
TEST_P(TenantTest, CodeInRunMayPopUntilNothingIsCurrent) {
  Tenant tenant = open(), other = open("other");
  const CUcontext own = driver.make_context();
  for (int round = 0; round < 2; ++round) {
    const Guard around(other);
    tenant.run(0, [&] { driver.pop_all(); });
    EXPECT_EQ(driver.current(), other.lease().context);
  }
  EXPECT_EQ(driver.current(), own);
  EXPECT_EQ(tenant.strikes() + other.strikes(), 0u);
  driver.pop_all();
  driver.destroy_context(own);
}

TEST_P(TenantTest, AnExceptionPassesAndTheThreadIsRestored) {
  Tenant tenant = open();
  EXPECT_THROW(tenant.run(0, []() -> int { throw std::runtime_error("inside"); }),
               std::runtime_error);
  EXPECT_EQ(driver.current(), nullptr);
}

TEST_P(TenantTest, SixThreadsAreInsideATenantAtOnce) {
  Tenant tenant = open();
  constexpr int threads = 6;
  std::atomic<int> arrived{0}, wrong{0};
  std::vector<CUcontext> seen(threads);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      const Guard guard(tenant);
      seen[static_cast<std::size_t>(i)] = driver.current();
      ++arrived;
      while (arrived < threads) std::this_thread::yield();
      // Memory of the lease is the same memory from every thread's context.
      const auto stack = driver.stack();
      if (stack.size() != 1 || driver.current() != seen[static_cast<std::size_t>(i)]) ++wrong;
    });
  }
  for (auto& thread : running) thread.join();
  EXPECT_EQ(wrong, 0);
  std::sort(seen.begin(), seen.end());
  const auto distinct = std::unique(seen.begin(), seen.end()) - seen.begin();
  EXPECT_EQ(distinct, 1) << "the code of a tenant has one default stream on all its threads";
}

TEST_P(TenantTest, CloseIsRefusedWhileAThreadIsInside) {
  Tenant tenant = open();
  {
    const Guard guard(tenant);
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { tenant.close(); }),
                HasSubstr("end its guards first"));
  }
  tenant.close();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { tenant.lease(); }), HasSubstr("closed"));
  EXPECT_EQ(tenant.name(), "filter") << "who it was can still be asked";
}

TEST_P(TenantTest, CloseReleasesForgottenMemoryAlsoAfterALoss) {
  Tenant keeper = broker.host();  // the device stays in use
  const auto free_memory = [&] {
    broker.poll();  // a pool that work of a neighbour kept at the close ends here
    const Guard guard(keeper);
    return driver.free_memory();
  };
  {
    // The driver itself keeps memory after the first allocation and the first stream. That is not a
    // leak.
    Tenant first = open();
    static_cast<void>(first.allocate(1 << 20));
    static_cast<void>(first.create_stream());
  }
  const std::size_t before = free_memory();
  for (const bool lose : {false, true}) {
    Tenant tenant = open();
    static_cast<void>(tenant.create_stream());
    const std::uint64_t kept = tenant.allocate(32 << 20), given_back = tenant.allocate(32 << 20);
    EXPECT_NE(kept, given_back);
    tenant.release(given_back);
    EXPECT_EQ(tenant.memory_bytes(), std::uint64_t{32} << 20);
    if (lose) {
      EXPECT_TRUE(broker.force_loss(tenant.id(), 0, "a test"));
    }
    tenant.close();
    // A green context that was given up is destroyed, and NVIDIA's driver keeps 4 MiB of each.
    const std::size_t kept_by_driver =
        (std::size_t{2} << 20) + (GetParam() == LeaseKind::green ? std::size_t{4} << 20 : 0) +
        (lose && GetParam() == LeaseKind::green ? std::size_t{5} << 20 : 0);
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::size_t after = free_memory();
    while (after + kept_by_driver < before && std::chrono::steady_clock::now() < latest) {
      after = free_memory();
    }
    EXPECT_GE(after + kept_by_driver, before) << "lost: " << lose;
  }
}

TEST_F(BrokerTest, AGreenContextGoesToTheNextLeaseOfItsShape) {
  Tenant first = broker.open_tenant("first", {LeaseChoice(LeaseKind::green)});
  const LeaseInfo before = first.lease();
  if (before.granted.kind != LeaseKind::green) GTEST_SKIP() << before.reason;
  first.close();
  Tenant second = broker.open_tenant("second", {LeaseChoice(LeaseKind::green)});
  EXPECT_EQ(second.lease().context, before.context) << "a driver keeps 4 MiB of each destroyed one";
  EXPECT_GT(second.lease().generation, before.generation) << "another life all the same";
  broker.force_loss(second.id(), 0, "a test");
  EXPECT_NE(second.lease().context, before.context) << "what was given up is not used again";
}

TEST_P(TenantTest, TenantReleasesOnlyItsOwnMemoryAndStreams) {
  Tenant one = open("one"), two = open("two");
  const std::uint64_t address = one.allocate(4096);
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { two.release(address); }),
              HasSubstr("not held by two"));
  CUstream stream = one.create_stream();
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { two.destroy_stream(stream); }),
              HasSubstr("not held by two"));
  one.destroy_stream(stream);
  one.release(address);
}

TEST_P(TenantTest, ALossIsRenewedByTheNextGuard) {
  Tenant tenant = open();
  const LeaseInfo old = tenant.lease();
  broker.force_loss(tenant.id(), 0, "a test");
  const Guard guard(tenant);
  EXPECT_GT(tenant.lease().generation, old.generation);
  EXPECT_EQ(driver.current(), tenant.lease().context);
}

TEST_P(TenantTest, ReportedStatusesThatAreNoFaultLoseNoLease) {
  Tenant tenant = open();
  EXPECT_EQ(tenant.report_status(0, CUDA_SUCCESS), LeaseState::lost) << "there is none yet";
  const LeaseInfo old = tenant.lease();
  EXPECT_EQ(tenant.report_status(0, CUDA_SUCCESS), LeaseState::ready);
  EXPECT_EQ(tenant.report_status(0, CUDA_ERROR_INVALID_VALUE), LeaseState::ready);
  EXPECT_EQ(tenant.report_status(0, CUDA_ERROR_INVALID_HANDLE), LeaseState::ready);
  EXPECT_EQ(tenant.report_status(99, CUDA_ERROR_CONTEXT_IS_DESTROYED), LeaseState::lost)
      << "no such device";
  EXPECT_EQ(tenant.lease().generation, old.generation);
}

TEST_F(BrokerTest, ADestroyedContextOfATenantIsMadeAnewWhenTheHostTells) {
  const RawDriver driver(broker.driver().path);
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::private_own)});
  const LeaseInfo old = tenant.lease();
  driver.destroy_context(old.context);
  EXPECT_EQ(tenant.lease().state, LeaseState::ready) << "the broker has not seen it";
  EXPECT_EQ(tenant.report_status(0, CUDA_ERROR_CONTEXT_IS_DESTROYED), LeaseState::lost);
  const Guard guard(tenant);
  EXPECT_GT(tenant.lease().generation, old.generation);
  EXPECT_EQ(driver.current(), tenant.lease().context);
}

TEST_P(TenantTest, ALossWhileAThreadIsInsideLeavesThatThreadAlone) {
  Tenant tenant = open();
  CUcontext inside = nullptr;
  {
    const Guard guard(tenant);
    inside = driver.current();
    broker.force_loss(tenant.id(), 0, "a test");
    EXPECT_EQ(driver.current(), inside);
    const Guard fresh(tenant);  // another generation, hence another place
  }
  EXPECT_EQ(driver.current(), nullptr);
  EXPECT_EQ(tenant.strikes(), 0u);
}

TEST_P(TenantTest, LibrariesAreLoadedUnderGuardAndEndWithTheTenant) {
  CUcontext own = driver.make_context();
  const auto before = driver.stack();
  Tenant tenant = broker.open_tenant("format", {LeaseChoice(GetParam()), false, true});
  const AdoptedLibrary library = tenant.adopt(test_plugin("careless"));
  EXPECT_EQ(driver.stack(), before) << "its constructor left a context current";
  EXPECT_THAT(said("strike"), Contains(HasSubstr("dlopen: left 1 context(s) pushed")));
  EXPECT_NE(library.symbol("ctxb_test_careless"), nullptr);
  EXPECT_EQ(library.symbol("no_such_symbol"), nullptr);
  EXPECT_THAT(error_text(ErrorKind::plugin_load, [&] { tenant.adopt(test_plugin("broken_text")); }),
              HasSubstr("broken_text"));
  EXPECT_EQ(driver.stack(), before);
  tenant.close();
  EXPECT_FALSE(is_mapped(test_plugin("careless")));
  EXPECT_EQ(driver.stack(), before) << "its destructor popped what was current";
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return library.symbol("x"); }),
              HasSubstr("ended with the tenant"));
  driver.pop_all();
  driver.destroy_context(own);
}

TEST_P(TenantTest, ReadyContextsWorkLikeOthers) {
  BrokerOptions with_ready = options();
  with_ready.ready.green = 2;
  with_ready.ready.private_own = GetParam() == LeaseKind::private_own ? 1 : 0;
  with_ready.ready.memory_budget = std::uint64_t{2} << 30;
  with_ready.host.lease = LeaseChoice(LeaseKind::shared);
  Broker second = Broker::open(std::move(with_ready));
  Tenant host = second.host();
  static_cast<void>(host.lease());
  EXPECT_TRUE(second.wait_until_ready());
  for (int round = 0; round < 3; ++round) {
    Tenant one = second.open_tenant("one", {LeaseChoice(GetParam())}),
           two = second.open_tenant("two", {LeaseChoice(GetParam())});
    const std::uint64_t address = one.allocate(4096);
    const Guard outer(one);
    const Guard inner(two);
    EXPECT_EQ(driver.current(), two.lease().context);
    one.release(address);
  }
  EXPECT_TRUE(second.wait_until_ready());
  second.begin_realtime();
  EXPECT_TRUE(second.wait_until_ready()) << "all stand";
  Tenant late = second.open_tenant("late", {LeaseChoice(LeaseKind::private_own)});
  static_cast<void>(late.lease());
  EXPECT_EQ(second.wait_until_ready(), GetParam() != LeaseKind::private_own);
  second.end_realtime();
  EXPECT_TRUE(second.wait_until_ready());
}

// By default: none of 524 MiB fits. On the software device a context takes nothing.
TEST_F(BrokerTest, ReadyContextsStayWithinTheirBudget) {
  const RawDriver driver(broker.driver().path);
  Tenant host = broker.host();
  const auto free_memory = [&] { return host.run(0, [&] { return driver.free_memory(); }); };
  BrokerOptions with_ready = options();
  with_ready.ready.private_own = 1;
  const std::size_t budget = with_ready.ready.memory_budget;
  Broker second = Broker::open(std::move(with_ready));
  const std::size_t before = free_memory();
  second.use_device(0);
  EXPECT_TRUE(second.wait_until_ready());
  EXPECT_GE(free_memory() + budget, before);
  if (broker.driver().kind == DriverChoice::nvidia) {
    EXPECT_THAT(said("ready"),
                ::testing::ElementsAre(HasSubstr("no private context is kept ready on device 0")));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TenantTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_F(BrokerTest, TheHostIsTenantZero) {
  Tenant host = broker.host();
  EXPECT_EQ(host.id(), host_tenant);
  EXPECT_EQ(host.name(), "host");
  EXPECT_EQ(host.lease().tenant, host_tenant);
  EXPECT_EQ(broker.host().lease().generation, host.lease().generation) << "the same tenant";
}

TEST_F(BrokerTest, TheHostsLeaseIsWhatTheBrokersOptionsAskFor) {
  BrokerOptions wanted = options();
  wanted.host.lease = LeaseChoice(LeaseKind::private_own);
  Broker second = Broker::open(std::move(wanted));
  EXPECT_EQ(second.host().lease().granted.kind, LeaseKind::private_own);
  EXPECT_NE(broker.host().lease().granted.kind, LeaseKind::private_own) << "without the option";
}

TEST_F(BrokerTest, ClosingOneHandleOfTheHostLeavesTheOthersWhatTheyHold) {
  const RawDriver driver(broker.driver().path);
  Tenant one = broker.host();
  Tenant other = broker.host();
  const std::uint64_t generation = one.lease().generation;
  const std::uint64_t address = one.allocate(4096);
  {
    const Guard guard(other);  // nor does it refuse
    one.close();
    EXPECT_EQ(driver.current(), other.lease().context);
  }
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { one.lease(); }), HasSubstr("closed"));
  EXPECT_EQ(other.lease().generation, generation);
  EXPECT_EQ(other.memory_bytes(), 4096u);
  other.release(address);
  { const Tenant passing = broker.host(); }
  EXPECT_EQ(other.lease().generation, generation);
  // The control: the last one ends everything.
  {
    const Guard guard(other);
    EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { other.close(); }),
                HasSubstr("end its guards first"));
  }
  other.close();
  EXPECT_GT(broker.host().lease().generation, generation);
}

TEST_F(BrokerTest, TheBrokerIsNotClosedWhileATenantIsOpen) {
  Tenant tenant = broker.open_tenant("filter");
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { broker.close(); }),
              HasSubstr("used by 1 tenant"));
  tenant.close();
  broker.close();
}

TEST_F(BrokerTest, ATenantNeedsADriverAndAName) {
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return broker.open_tenant(""); }),
              HasSubstr("name is empty"));
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { return broker.open_tenant("host"); }),
              HasSubstr("belongs to no tenant"));
  EXPECT_NO_THROW(static_cast<void>(broker.open_tenant("hosts"))) << "a control";
  Broker without = Broker::open_without_driver();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return without.open_tenant("filter"); }),
              HasSubstr("without a driver"));
}

TEST_F(BrokerTest, UsersOfThePerThreadStreamAreNotPutIntoAGreenContext) {
  Tenant tenant = broker.open_tenant("legacy", {LeaseChoice(LeaseKind::green), true});
  EXPECT_EQ(tenant.lease().granted.kind, LeaseKind::shared);
  EXPECT_THAT(tenant.lease().reason, HasSubstr("per-thread default stream"));
}

TEST_F(BrokerTest, PartitionsAreUnionsOfGroupsOfOneSplit) {
  const unsigned all = static_cast<unsigned>(broker.devices()[0].multiprocessors);
  Tenant most = broker.open_tenant("most", {{LeaseKind::green, all + 1}});
  if (broker.open_tenant("probe", {LeaseChoice(LeaseKind::green)}).lease().granted.kind !=
      LeaseKind::green) {
    GTEST_SKIP() << "no green contexts here";
  }
  // The device's own word: what is granted is on trial here.
  const std::string why = error_text(ErrorKind::lease_unavailable, [&] { most.lease(); });
  const std::string in_groups = "in groups of ";
  ASSERT_THAT(why, HasSubstr(in_groups));
  const auto group =
      static_cast<unsigned>(std::stoul(why.substr(why.find(in_groups) + in_groups.size())));
  if (group < 2) GTEST_SKIP() << "every size is granted as it was asked for";
  Tenant first = broker.open_tenant("first", {{LeaseKind::green, group + 1}});
  const unsigned granted = first.lease().granted.multiprocessors;
  EXPECT_EQ(granted, 2 * group) << "what was granted, not what was asked for";
  EXPECT_LT(granted, all);
  Tenant second = broker.open_tenant("second", {{LeaseKind::green, all - 2 * granted}});
  EXPECT_LE(granted + second.lease().granted.multiprocessors, all) << "disjoint";
  Tenant third = broker.open_tenant("third", {{LeaseKind::green, all}});
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { third.lease(); }),
              AllOf(HasSubstr("multiprocessors are free, in groups of"),
                    HasSubstr("(other partitions have " +
                              std::to_string(granted + second.lease().granted.multiprocessors) +
                              "; the driver puts ")));
  first.close();
  second.close();
  Tenant again = broker.open_tenant("again", {{LeaseKind::green, all / 2}});
  EXPECT_GE(again.lease().granted.multiprocessors, all / 2) << "given back";
}

}  // namespace
}  // namespace ctxbroker
