// SPDX-License-Identifier: Apache-2.0
// Threads that a tenant's library has from the C++ library: those of std::async, and a pool that
// outlives the call that started it. Their calls are the tenant's, whoever is inside a guard.
#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "gate_fixture.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

constexpr unsigned pool_size = 4;  // of async_threads.cpp
constexpr std::uint64_t all_bytes = pool_size * 4096;

// The lease, and where its memory comes from. A private lease has the driver's memory in any case.
struct LeaseWithMemory {
  LeaseKind lease;
  MemorySource memory;
};

class PoolThreadsTest : public GateTest, public ::testing::WithParamInterface<LeaseWithMemory> {
 protected:
  // Ends what a test has left, so that no thread uses a broker that is gone.
  void TearDown() override {
    for (auto* const end : end_pools) end();
  }

  Tenant open(const std::string& name) {
    TenantOptions with;
    with.lease.kind = GetParam().lease;
    with.memory = GetParam().memory;
    return broker.open_tenant(name, with);
  }
  static int call(const AdoptedLibrary& from, const char* name) {
    return symbol<int()>(from, name)();
  }
  static int run(Tenant& inside, const AdoptedLibrary& from, const char* name) {
    return inside.run(0, [&] { return call(from, name); });
  }
  static CUdeviceptr* parts_of(const AdoptedLibrary& from) {
    return symbol<CUdeviceptr*()>(from, "parts_of_memory")();
  }
  // Past the gate, from another tenant's lease.
  bool is_memory(CUdeviceptr address) {
    unsigned type = 0;
    return neighbour.run(0, [&] {
      return raw.call("cuPointerGetAttribute", static_cast<void*>(&type),
                      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    }) == CUDA_SUCCESS;
  }
  std::size_t put_off() { return broker.metrics().put_off.size(); }
  // Neither has broken a rule, and the neighbour holds no more than it did.
  void expect_peace(std::uint64_t neighbours_bytes = 0) {
    EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
    EXPECT_TRUE(comes_to_hold("neighbour", neighbours_bytes));
  }

  std::filesystem::path copy() {
    std::filesystem::copy_file(test_library("async_threads"), folder / "neighbours.so");
    return folder / "neighbours.so";
  }

  const TempFolder folder;
  const RawDriver raw{broker.driver().path};
  Tenant tenant = open("tenant"), neighbour = open("neighbour");
  const AdoptedLibrary library = tenant.adopt(test_library("async_threads"));
  const AdoptedLibrary neighbours = neighbour.adopt(copy());
  // They can be called when their tenants are closed, too.
  int (*const end_pools[2])() = {symbol<int()>(library, "end_pool"),
                                 symbol<int()>(neighbours, "end_pool")};
};

INSTANTIATE_TEST_SUITE_P(Kinds, PoolThreadsTest,
                         ::testing::Values(LeaseWithMemory{LeaseKind::shared, MemorySource::driver},
                                           LeaseWithMemory{LeaseKind::shared, MemorySource::pool},
                                           LeaseWithMemory{LeaseKind::private_own,
                                                           MemorySource::driver},
                                           LeaseWithMemory{LeaseKind::green, MemorySource::driver},
                                           LeaseWithMemory{LeaseKind::green, MemorySource::pool}),
                         [](const auto& info) {
                           const std::string lease = to_string(info.param.lease);
                           const bool is_own = info.param.lease == LeaseKind::private_own;
                           return (is_own ? "private_own" : lease) + "_" +
                                  to_string(info.param.memory);
                         });

TEST_P(PoolThreadsTest, CallsOfAsyncThreadsAreTheTenants) {
  for (int round = 0; round < 3; ++round) {  // with new threads each time
    EXPECT_EQ(run(tenant, library, "allocate_on_async"), 0);
    EXPECT_EQ(held_bytes("tenant"), all_bytes);
    expect_peace();
    EXPECT_EQ(run(tenant, library, "free_on_async"), 0);
    EXPECT_TRUE(comes_to_hold("tenant", 0));
  }
  expect_peace();
  tenant.close();
  broker.poll();
  EXPECT_EQ(put_off(), 0U) << "the threads have left the context when they ended";
}

TEST_P(PoolThreadsTest, CallsOfAPoolAreTheTenantsInLaterCallsToo) {
  ASSERT_EQ(run(tenant, library, "start_pool"), 0);
  EXPECT_EQ(run(tenant, library, "allocate_on_pool"), 0) << "in another call";
  EXPECT_EQ(held_bytes("tenant"), all_bytes);
  EXPECT_EQ(run(tenant, library, "free_on_async"), 0) << "other threads of the same tenant";
  EXPECT_TRUE(comes_to_hold("tenant", 0));
  EXPECT_EQ(call(library, "allocate_on_pool"), 0) << "with no guard";
  EXPECT_EQ(held_bytes("tenant"), all_bytes);
  EXPECT_EQ(run(neighbour, library, "free_on_pool"), 0) << "in the neighbour's guard";
  EXPECT_TRUE(comes_to_hold("tenant", 0));
  expect_peace();
  EXPECT_EQ(run(tenant, library, "end_pool"), 0);
  tenant.close();
  broker.poll();
  EXPECT_EQ(put_off(), 0U);
}

TEST_P(PoolThreadsTest, PoolsOfTwoTenantsWorkBesideEachOther) {
  ASSERT_EQ(run(tenant, library, "start_pool"), 0);
  ASSERT_EQ(run(neighbour, neighbours, "start_pool"), 0);
  EXPECT_EQ(run(neighbour, neighbours, "allocate_on_pool"), 0);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run(tenant, library, "allocate_on_pool"), 0);
    EXPECT_EQ(held_bytes("tenant"), all_bytes);
    EXPECT_EQ(run(tenant, library, "free_on_pool"), 0);
    EXPECT_TRUE(comes_to_hold("tenant", 0));
    EXPECT_EQ(run(neighbour, neighbours, "free_on_pool"), 0);
    EXPECT_EQ(run(neighbour, neighbours, "allocate_on_pool"), 0);
  }
  EXPECT_TRUE(comes_to_hold("tenant", 0));
  expect_peace(all_bytes);
}

TEST_P(PoolThreadsTest, MemoryOfAPoolThatOutlivesItsTenantIsGivenBack) {
  ASSERT_EQ(run(tenant, library, "start_pool"), 0);
  ASSERT_EQ(run(neighbour, neighbours, "start_pool"), 0);
  ASSERT_EQ(run(tenant, library, "allocate_on_pool"), 0);
  ASSERT_EQ(run(neighbour, neighbours, "allocate_on_pool"), 0);
  std::array<CUdeviceptr, pool_size> parts{};
  std::copy_n(parts_of(library), pool_size, parts.begin());
  for (const CUdeviceptr part : parts) EXPECT_TRUE(is_memory(part)) << "the control";
  tenant.close();
  if (GetParam().memory == MemorySource::driver) {  // memory of a pool is freed later
    for (const CUdeviceptr part : parts) EXPECT_FALSE(is_memory(part));
  }
  EXPECT_EQ(put_off(), GetParam().lease == LeaseKind::shared ? 0U : 1U)
      << "a control: the pool's threads are in the context";
  EXPECT_EQ(end_pools[0](), 0);
  broker.poll();
  EXPECT_EQ(put_off(), 0U);
  EXPECT_EQ(neighbour.strikes(), 0U);
  EXPECT_EQ(held_bytes("neighbour"), all_bytes);
  EXPECT_EQ(run(neighbour, neighbours, "free_on_pool"), 0);
}

// The control: if the pool's calls counted for somebody else, they would be refused.
TEST_P(PoolThreadsTest, PoolIsRefusedTheMemoryOfANeighbour) {
  ASSERT_EQ(run(tenant, library, "start_pool"), 0);
  ASSERT_EQ(run(neighbour, neighbours, "allocate_on_async"), 0);
  std::copy_n(parts_of(neighbours), pool_size, parts_of(library));
  EXPECT_EQ(run(tenant, library, "free_on_pool"), static_cast<int>(pool_size));
  EXPECT_EQ(run(tenant, library, "free_on_async"), static_cast<int>(pool_size));
  EXPECT_GT(tenant.strikes(), 0U);
  EXPECT_EQ(neighbour.strikes(), 0U);
  EXPECT_EQ(held_bytes("neighbour"), all_bytes);
  EXPECT_EQ(run(neighbour, neighbours, "free_on_async"), 0) << "nothing was taken from it";
}

}  // namespace
}  // namespace ctxbroker
