// SPDX-License-Identifier: Apache-2.0
// The one book of what tenants hold, and how its things end.
#include "ledger/ledger.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "context/lease_table.hpp"
#include "fake_driver.hpp"
#include "ledger/give_back.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Holder code_of_tenant(std::uint32_t tenant) {
  return {.tenant = TenantId{tenant}};
}

Holding holding(Kind kind, std::uint64_t handle, const Holder& holder, std::uint64_t bytes = 0) {
  return {.kind = kind, .holder = holder, .handle = handle, .bytes = bytes};
}

// ---- the book --------------------------------------------------------------------------------

TEST(LedgerTest, ThingHeldSeveralTimesIsForgottenWithItsLastHold) {
  Ledger all;
  const Holder holder = code_of_tenant(1), other = code_of_tenant(2);
  const Holding context = holding(Kind::context, 16, holder);
  all.count_reference(Kind::context, 16, holder);
  EXPECT_FALSE(all.holds(holder, Kind::context, 16)) << "only what is held is counted";
  all.add_reference(context);
  all.add_reference(context);
  all.count_reference(Kind::context, 16, holder);
  all.count_reference(Kind::context, 16, other);
  for (const std::uint64_t more : {2, 1, 0}) {
    EXPECT_EQ(all.find(Kind::context, 16)->more_holds, more);
    EXPECT_EQ(all.remove_reference(Kind::context, 16, holder)->more_holds, more);
  }
  EXPECT_FALSE(all.remove_reference(Kind::context, 16, holder).has_value());
}

// Each has handles of its own and some that are everybody's, of which each ends what it made.
TEST(LedgerTest, ManyThreadsAddAndRemoveAtOnce) {
  Ledger all;
  constexpr std::uint64_t rounds = 3'000, kept = 40, shared = 8;
  constexpr unsigned thread_count = 6;
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      for (unsigned i = 0; i < thread_count; ++i) {
        for (const Holding& one : all.held_by(code_of_tenant(i + 1))) EXPECT_EQ(one.bytes, i + 1);
      }
    }
  });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      const Holder self = code_of_tenant(i + 1);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t handle = (round * thread_count + i) * 512;
        all.add(holding(Kind::memory, handle, self, i + 1));
        EXPECT_TRUE(all.holds(self, Kind::memory, handle));
        if (round >= kept) {
          EXPECT_TRUE(
              all.remove(Kind::memory, handle - kept * thread_count * 512, self).has_value());
        }
        all.add(holding(Kind::event, round % shared, self, i + 1));
        if (const auto ended = all.remove(Kind::event, round % shared, self)) {
          EXPECT_EQ(ended->bytes, i + 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  looker.join();
  for (unsigned i = 0; i < thread_count; ++i) {
    const auto left = all.held_by(code_of_tenant(i + 1));
    const auto memory = std::count_if(left.begin(), left.end(),
                                      [](const Holding& one) { return one.kind == Kind::memory; });
    EXPECT_EQ(memory, static_cast<std::ptrdiff_t>(kept));
  }
}

TEST(LedgerTest, HandleIsRemovedOnlyByItsHolder) {
  Ledger all;
  const Holder one = code_of_tenant(1), two = code_of_tenant(2);
  all.add(holding(Kind::stream, 0x1000, one));
  all.add(holding(Kind::event, 0x1000, two));  // another kind of thing
  EXPECT_TRUE(all.holds(one, Kind::stream, 0x1000));
  EXPECT_FALSE(all.remove(Kind::stream, 0x1000, two).has_value());
  EXPECT_TRUE(all.remove(Kind::stream, 0x1000, one).has_value());
  EXPECT_FALSE(all.find(Kind::stream, 0x1000).has_value());
  EXPECT_TRUE(all.holds(two, Kind::event, 0x1000));
  EXPECT_TRUE(all.remove(Kind::event, 0x1000).has_value());
}

TEST(LedgerTest, HoldingsOfOneTenantAreKeptApartByOrigin) {
  Ledger all;
  const Holder code = code_of_tenant(1);
  const Holder host{.tenant = TenantId{1}, .origin = Origin::host_api};
  const Holder first{.tenant = TenantId{1}, .origin = Origin::sdk, .activation = 7};
  const Holder second{.tenant = TenantId{1}, .origin = Origin::sdk, .activation = 8};
  std::uint64_t address = 0x1000;
  for (const Holder& one : {code, host, first, second}) {
    all.add(holding(Kind::memory, address += 0x1000, one));
  }
  for (const Holder& one : {code, host, first, second}) {
    EXPECT_THAT(all.held_by(one), SizeIs(1));
  }
  EXPECT_EQ(all.find(Kind::memory, 0x4000)->holder.activation, 7u);
  EXPECT_FALSE(all.remove(Kind::memory, 0x4000, second).has_value());
  EXPECT_FALSE(all.remove(Kind::memory, 0x4000, code).has_value());
  EXPECT_TRUE(all.remove(Kind::memory, 0x4000, first).has_value());
}

TEST(LedgerTest, HoldingsAreListedInTheOrderOfGivingBack) {
  Ledger all;
  const Holder one = code_of_tenant(1);
  for (const Kind kind : {Kind::context, Kind::memory, Kind::stream, Kind::graph_exec}) {
    all.add(holding(kind, 0x2000, one));
  }
  std::vector<Kind> kinds;
  for (const Holding& held : all.held_by(one)) {
    kinds.push_back(held.kind);
    EXPECT_TRUE(all.remove(held.kind, held.handle, one).has_value());
  }
  EXPECT_THAT(kinds, ElementsAre(Kind::graph_exec, Kind::stream, Kind::memory, Kind::context));
  EXPECT_THAT(all.held_by(one), IsEmpty());
}

TEST(LedgerTest, RemovedContextTakesItsHoldingsAlong) {
  Ledger all;
  Budget budget(100);
  const Holder one = code_of_tenant(1);
  Holding inside = holding(Kind::memory, 0x3000, one, 50);
  Holding outside = holding(Kind::memory, 0x4000, one, 50);
  inside.context = 0xc0;
  outside.context = 0xd0;
  for (Holding* const held : {&inside, &outside}) {
    held->budget = &budget;
    EXPECT_TRUE(budget.take(held->bytes));
    all.add(*held);
  }
  for (const Holding& ended : all.take_context(one, 0xc0)) stop_counting(ended);
  EXPECT_EQ(budget.held(), 50u);
  EXPECT_FALSE(all.find(Kind::memory, 0x3000).has_value());
  EXPECT_TRUE(all.remove(Kind::memory, 0x4000).has_value());
}

TEST(LedgerTest, AHandleThatTheDriverGivesOutAgainIsTheNewHolders) {
  Ledger all;
  Budget budget;
  const Holder one = code_of_tenant(1), two = code_of_tenant(2);
  Holding old = holding(Kind::memory, 0x5000, one, 50);
  old.budget = &budget;
  budget.take(50);
  all.add(old);
  all.add(holding(Kind::memory, 0x5000, two, 70));
  EXPECT_EQ(budget.held(), 0u) << "its end was not seen";
  EXPECT_THAT(all.held_by(one), IsEmpty());
  EXPECT_TRUE(all.holds(two, Kind::memory, 0x5000));
}

TEST(LedgerTest, RangesAreFoundByAnyAddressInThem) {
  Ledger all;
  const Holder one = code_of_tenant(1), two = code_of_tenant(2);
  for (const auto& [address, holder] :
       {std::pair(0x10000, one), std::pair(0x20000, one), std::pair(0x30000, two)}) {
    Holding range = holding(Kind::mapping, static_cast<std::uint64_t>(address), holder);
    range.extent = 0x10000;
    all.add(range);
  }
  all.add(holding(Kind::reservation, 0x40000, one));
  EXPECT_TRUE(all.holds_range(one, Kind::mapping, 0x18000, 0x10000));
  EXPECT_FALSE(all.holds_range(one, Kind::mapping, 0x28000, 0x10000)) << "the end is another's";
  EXPECT_FALSE(all.holds_range(two, Kind::mapping, 0x38000, 0x10000)) << "it ends before";
  EXPECT_FALSE(all.holds_range(one, Kind::mapping, 0x8000, 0x1000));
  EXPECT_FALSE(all.holds_range(one, Kind::mapping, 0x18000, ~std::uint64_t{0})) << "no overflow";
  EXPECT_FALSE(all.holds_range(one, Kind::reservation, 0x18000, 1)) << "another kind";
  EXPECT_THAT(all.starts_within(Kind::mapping, 0x18000, 0x20000), ElementsAre(0x20000, 0x30000));
}

// ---- the end of what is left -----------------------------------------------------------------

class GiveBackTest : public ::testing::Test {
 protected:
  DriverTable driver = fake_driver().table;
  std::vector<std::string> said;
  Recorder recorder{[this](const Record& record) { said.emplace_back(record.text); }};
  TenantIdentity tenant{next_tenant_id(), "blur", &recorder};
  const Holder self{.tenant = tenant.id};
  const Reason reason{tenant, driver, "the tenant left"};
};

TEST_F(GiveBackTest, ThingsEndInTheOrderThatTheDriverNeeds) {
  for (std::size_t kind = kind_count; kind-- > 0;) {
    ledger().add(holding(static_cast<Kind>(kind), 0x7000 + kind, self));
  }
  std::vector<Kind> order;
  const CUresult status = give_back(self, reason, [&](const Holding& held) -> LeftThing {
    order.push_back(held.kind);
    ledger().remove(held.kind, held.handle, self);
    return {};
  });
  EXPECT_EQ(status, CUDA_SUCCESS);
  EXPECT_THAT(order, SizeIs(kind_count));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  const auto place = [&](Kind kind) { return std::find(order.begin(), order.end(), kind); };
  EXPECT_LT(place(Kind::stream), place(Kind::memory)) << "the work of streams uses memory";
  EXPECT_LT(place(Kind::graph_exec), place(Kind::module)) << "graphs use kernels";
  EXPECT_LT(place(Kind::mapping), place(Kind::reservation));
  EXPECT_LT(place(Kind::memory), place(Kind::pool));
  EXPECT_EQ(order.back(), Kind::context) << "all else lives in contexts";
}

TEST_F(GiveBackTest, GiveBackReportsTheFateOfEverythingOnce) {
  using Fate = LeftThing::Fate;
  for (const Kind kind : {Kind::event, Kind::stream, Kind::module, Kind::memory, Kind::own_pool}) {
    ledger().add(holding(kind, 0x8000, self));
    ledger().add(holding(kind, 0x9000, self));
  }
  const CUresult status = give_back(self, reason, [&](const Holding& held) -> LeftThing {
    ledger().remove(held.kind, held.handle, self);
    if (held.kind == Kind::stream) return {Fate::put_off};
    if (held.kind == Kind::module) return {Fate::of_code};
    if (held.kind == Kind::own_pool) return {Fate::not_counted};
    if (held.kind == Kind::memory) return {Fate::ended, CUDA_ERROR_INVALID_VALUE};
    return {Fate::ended, CUDA_ERROR_CONTEXT_IS_DESTROYED};
  });
  EXPECT_EQ(status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(said,
              ElementsAre("gave back what the tenant left: 2 x event, 2 x device memory",
                          "put off until work that hangs ends, of what the tenant left: 2 x stream",
                          "stays with the tenant's code, which stays in the process: 2 x module",
                          HasSubstr("something that the tenant left could not be given back: ")));
}

// ---- budgets ---------------------------------------------------------------------------------

TEST(BudgetTest, BudgetIsKeptToTheByte) {
  Budget budget(100);
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(41));
  EXPECT_TRUE(budget.take(40));
  EXPECT_FALSE(budget.take(1));
  EXPECT_FALSE(budget.take(~std::uint64_t{0})) << "no overflow";
  budget.raise_peak();
  budget.give(70);
  budget.raise_peak();
  EXPECT_EQ(budget.held(), 30u);
  EXPECT_EQ(budget.peak(), 100u);
}

// One that adds first and looks then refuses some that fit in, because another's refused bytes
// stand there for a moment; one that looks first and adds then lets too many in.
TEST(BudgetTest, BudgetIsExactWithEightThreads) {
  constexpr std::uint64_t thread_count = 8, each = 10;
  Budget budget(thread_count * each);
  std::atomic<int> refused{0}, too_many{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        if (!budget.take(each)) ++refused;
        budget.raise_peak();
        if (budget.take(thread_count * each)) ++too_many;
        budget.give(each);
      }
      budget.take(each);
      budget.raise_peak();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0) << "there was always room for one of each";
  EXPECT_EQ(too_many, 0);
  EXPECT_EQ(budget.held(), thread_count * each);
  EXPECT_EQ(budget.peak(), thread_count * each);
}

// ---- what the broker makes in leases ---------------------------------------------------------

class LedgerOfLeasesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Lease> lease_of(const std::shared_ptr<const TenantIdentity>& tenant) {
    LeaseRequest request;
    request.asked = LeaseChoice(LeaseKind::private_own);
    return leases.get(tenant, request);
  }
  std::shared_ptr<const TenantIdentity> make_tenant() {
    return std::make_shared<const TenantIdentity>(next_tenant_id(), "blur", &recorder);
  }
  CUdeviceptr allocate(const std::shared_ptr<Lease>& in, std::uint64_t bytes,
                       const Holder& holder) {
    in->tenant().memory.take(bytes);
    return record(make_device_memory(in, bytes), bytes, holder, &in->tenant().memory);
  }
  std::uint64_t held_in(const Lease& in) const { return in.counters().memory.held(); }

  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
  Recorder recorder;
  TenantIdentity host{host_tenant, "host", &recorder};
  ProcessFault fault;
  LeaseTable leases{driver, host, fault};
  std::shared_ptr<const TenantIdentity> tenant = make_tenant();
  std::shared_ptr<Lease> lease = lease_of(tenant);
  const Holder self{.tenant = tenant->id, .origin = Origin::host_api};
  const Reason reason{*tenant, driver.table};
};

TEST_F(LedgerOfLeasesTest, MemoryIsCountedUntilItIsReleased) {
  const CUdeviceptr a = allocate(lease, 100, self);
  allocate(lease, 50, self);
  EXPECT_EQ(held_in(*lease), 150u);
  EXPECT_EQ(lease->counters().allocations, 2);
  EXPECT_EQ(tenant->memory.held(), 150u);
  const auto released = release(self, Kind::memory, a);
  ASSERT_TRUE(released.has_value());
  EXPECT_EQ(released->status, CUDA_SUCCESS);
  EXPECT_EQ(released->bytes, 100u);
  EXPECT_EQ(held_in(*lease), 50u);
  EXPECT_EQ(lease->counters().memory.peak(), 150u);
  EXPECT_EQ(lease->counters().allocations, 1);
  EXPECT_EQ(tenant->memory.held(), 50u);
  EXPECT_THAT(books.memory, SizeIs(1));
  give_back(self, reason);
}

TEST_F(LedgerOfLeasesTest, MemoryIsReleasedByItsHolderAndOnce) {
  const Holder instance{.tenant = tenant->id, .origin = Origin::sdk, .activation = 1};
  const CUdeviceptr mine = allocate(lease, 100, instance);
  EXPECT_FALSE(release(self, Kind::memory, mine).has_value());
  EXPECT_FALSE(release(code_of_tenant(tenant->id.value), Kind::memory, mine).has_value());
  EXPECT_FALSE(release(instance, Kind::memory, mine + 4).has_value());
  EXPECT_TRUE(release(instance, Kind::memory, mine).has_value());
  EXPECT_FALSE(release(instance, Kind::memory, mine).has_value()) << "twice";
  EXPECT_THAT(books.memory, IsEmpty());
}

TEST_F(LedgerOfLeasesTest, GiveBackEndsAllOfOneHolderAndNothingElse) {
  for (int i = 0; i < 3; ++i) allocate(lease, 10, self);
  const auto other = make_tenant();
  const auto other_lease = lease_of(other);
  const Holder neighbour{.tenant = other->id, .origin = Origin::host_api};
  allocate(other_lease, 10, neighbour);
  EXPECT_EQ(give_back(self, reason), CUDA_SUCCESS);
  EXPECT_THAT(books.memory, SizeIs(1)) << "the neighbour's";
  EXPECT_EQ(held_in(*lease), 0u);
  EXPECT_EQ(tenant->memory.held(), 0u);
  EXPECT_EQ(give_back(neighbour, reason), CUDA_SUCCESS);
  EXPECT_THAT(books.memory, IsEmpty());
}

TEST_F(LedgerOfLeasesTest, WhatTheDriverRefusesToFreeIsHeldAndTriedAgain) {
  const CUdeviceptr address = allocate(lease, 10, self);
  books.free_status = CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < 2; ++i) {
    const auto released = release(self, Kind::memory, address);
    ASSERT_TRUE(released.has_value());
    EXPECT_EQ(released->status, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(released->is_still_held);
    EXPECT_EQ(tenant->memory.held(), 10u);
    EXPECT_EQ(held_in(*lease), 10u);
    EXPECT_EQ(ledger().refused_bytes(self), 10u);
    EXPECT_THAT(ledger().given_up(), IsEmpty()) << "its holder has it";
  }
  EXPECT_EQ(give_back(self, reason), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(ledger().given_up(), SizeIs(1));
  end_given_up(&recorder, false);
  EXPECT_THAT(ledger().given_up(), SizeIs(1));
  EXPECT_EQ(tenant->memory.held(), 10u);
  EXPECT_EQ(lease->counters().allocations, 1) << "it is there still";
  books.free_status = CUDA_SUCCESS;
  end_given_up(nullptr, false);
  EXPECT_THAT(books.memory, SizeIs(1)) << "it is another broker's";
  end_given_up(&recorder, false);
  EXPECT_THAT(ledger().given_up(), IsEmpty());
  EXPECT_EQ(tenant->memory.held(), 0u);
  EXPECT_THAT(books.memory, IsEmpty());
  EXPECT_EQ(lease->counters().allocations, 0);
  EXPECT_EQ(held_in(*lease), 0u);
}

TEST_F(LedgerOfLeasesTest, LostMemoryIsForgottenWithoutADriverCall) {
  const CUdeviceptr address = allocate(lease, 10, self);
  allocate(lease, 10, self);
  lease->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_TRUE(release(self, Kind::memory, address).has_value());
  EXPECT_EQ(give_back(self, reason), CUDA_SUCCESS);
  EXPECT_EQ(tenant->memory.held(), 0u);
  EXPECT_THAT(books.memory, SizeIs(2));
}

// After a loss the driver gives addresses out again that their former holders have yet to release.
TEST_F(LedgerOfLeasesTest, LostMemoryIsStillItsHoldersWhenANeighbourHasTheAddress) {
  const CUdeviceptr address = allocate(lease, 10, self);
  lease->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const auto other = make_tenant();
  const auto other_lease = lease_of(other);
  const Holder neighbour{.tenant = other->id, .origin = Origin::host_api};
  record(DeviceMemory(other_lease, address, 30), 30, neighbour, nullptr);
  EXPECT_TRUE(ledger().holds(neighbour, Kind::memory, address));
  EXPECT_TRUE(release(self, Kind::memory, address).has_value());
  EXPECT_THAT(books.memory, SizeIs(1)) << "the neighbour's was left alone";
  EXPECT_EQ(tenant->memory.held(), 0u);
  EXPECT_TRUE(release(neighbour, Kind::memory, address).has_value());
  EXPECT_THAT(books.memory, IsEmpty());
}

// Its own next generation has the address: that is what it means from then on.
TEST_F(LedgerOfLeasesTest, MemoryOfTheNextGenerationReplacesThatOfTheOneBefore) {
  const CUdeviceptr address = allocate(lease, 10, self);
  lease->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const auto next = lease_of(tenant);
  tenant->memory.take(30);
  record(DeviceMemory(next, address, 30), 30, self, &tenant->memory);
  EXPECT_EQ(tenant->memory.held(), 30u);
  EXPECT_EQ(held_in(*lease), 0u);
  EXPECT_EQ(release(self, Kind::memory, address)->bytes, 30u);
  EXPECT_EQ(tenant->memory.held(), 0u);
}

// One address may be opened several times, but not together with what ended with the lease.
TEST_F(LedgerOfLeasesTest, MemoryThatIsOpenedAgainReplacesThatOfTheGenerationBefore) {
  const SharedMemory opened{4096, 1 << 21, SharedMemory::How::opened};
  const auto held = [&] { return ledger().held_by(self); };
  record(opened, lease, self, nullptr);
  record(opened, lease, self, nullptr);
  EXPECT_THAT(held(), SizeIs(2));
  lease->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const auto next = lease_of(tenant);
  record(opened, next, self, nullptr);
  ASSERT_THAT(held(), SizeIs(1));
  EXPECT_EQ(held().front().lease, next);
  ledger().remove(Kind::ipc_memory, opened.address, self);
}

}  // namespace
}  // namespace ctxbroker::detail
