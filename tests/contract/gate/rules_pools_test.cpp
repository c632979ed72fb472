// SPDX-License-Identifier: Apache-2.0
// Memory pools: the default and the current one are the tenant's own.
#include <gmock/gmock.h>

#include <string>

#include "rules_fixture.hpp"
#include "store_support.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PoolsTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    int pools = 0;
    raw.call("cuDeviceGetAttribute", &pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
    if (pools == 0) GTEST_SKIP() << "the device has no memory pools";
  }
  static CUmemoryPool default_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(driver_call("cuDeviceGetDefaultMemPool", &pool, 0), CUDA_SUCCESS);
    return pool;
  }
  static CUmemoryPool current_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(driver_call("cuDeviceGetMemPool", &pool, 0), CUDA_SUCCESS);
    return pool;
  }
  static CUmemoryPool make_pool(int device = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(
        driver_call("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&properties)),
        CUDA_SUCCESS);
    return pool;
  }
  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    driver_call("cuMemAllocAsync", &address, bytes, static_cast<CUstream>(nullptr));
    return address;
  }
  static CUmemoryPool pool_of(CUdeviceptr address) {
    CUmemoryPool pool = nullptr;
    driver_call("cuPointerGetAttribute", static_cast<void*>(&pool),
                CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    return pool;
  }
  std::uint64_t threshold(CUmemoryPool pool) const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(raw.call("cuMemPoolGetAttribute", pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                       static_cast<void*>(&bytes)),
              CUDA_SUCCESS);
    return bytes;
  }
  static CUresult set_threshold(CUmemoryPool pool, std::uint64_t bytes) {
    return driver_call("cuMemPoolSetAttribute", pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                       static_cast<void*>(&bytes));
  }
};

TEST_P(PoolsTest, DefaultPoolOfATenantIsItsOwn) {
  CUmemoryPool real = nullptr;
  ASSERT_EQ(raw.call("cuDeviceGetDefaultMemPool", &real, 0), CUDA_SUCCESS);
  const std::uint64_t before = threshold(real);
  Tenant first = open(broker, "first", GetParam());
  Tenant second = open(broker, "second", GetParam());
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  first.run(0, [&] {
    pool = default_pool();
    EXPECT_NE(pool, real);
    EXPECT_EQ(default_pool(), pool);
    EXPECT_EQ(current_pool(), pool);
    EXPECT_EQ(set_threshold(pool, 8 * mib), CUDA_SUCCESS);
    EXPECT_EQ(threshold(pool), 8 * mib);
    address = allocate(mib);
    EXPECT_EQ(pool_of(address), pool);
    EXPECT_EQ(driver_call("cuMemPoolDestroy", pool), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_threshold(real, 8 * mib), CUDA_ERROR_NOT_PERMITTED) << "it is nobody's";
  });
  second.run(0, [&] {
    EXPECT_NE(default_pool(), pool);
    EXPECT_EQ(threshold(default_pool()), before);
    EXPECT_NE(pool_of(allocate(mib)), pool);
    EXPECT_EQ(driver_call("cuMemPoolTrimTo", pool, std::size_t{0}), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(driver_call("cuMemPoolTrimTo", default_pool(), std::size_t{0}), CUDA_SUCCESS);
  });
  EXPECT_EQ(threshold(real), before);
  EXPECT_EQ(first.run(0, [&] { return driver_call("cuMemFree_v2", address); }), CUDA_SUCCESS);
  // Without the gate: one for all.
  const CUmemoryPool seen[] = {first.run(0,
                                         [&] {
                                           CUmemoryPool one = nullptr;
                                           raw.call("cuDeviceGetDefaultMemPool", &one, 0);
                                           return one;
                                         }),
                               real};
  EXPECT_EQ(seen[0], seen[1]);
}

// The memory that a pool keeps for later stays with the tenant while its budget has room for it.
TEST_P(PoolsTest, UnusedPoolMemoryIsReleasedForTheBudget) {
  constexpr std::size_t kept = 64 * mib, little = 32 * mib, much = 64 * mib;  // in a pool's units
  for (const std::uint64_t budget : {128 * mib, std::size_t{0}}) {
    Tenant tenant = open(broker, "keeps", GetParam(), budget);
    tenant.run(0, [&] {
      const CUmemoryPool pool = default_pool();
      const auto reserved = [&] {
        std::uint64_t bytes = 0;
        raw.call("cuMemPoolGetAttribute", pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                 static_cast<void*>(&bytes));
        return bytes;
      };
      ASSERT_EQ(set_threshold(pool, ~std::uint64_t{0}), CUDA_SUCCESS);
      const CUdeviceptr address = allocate(kept);
      ASSERT_EQ(driver_call("cuMemFreeAsync", address, static_cast<CUstream>(nullptr)),
                CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuStreamSynchronize", static_cast<CUstream>(nullptr)), CUDA_SUCCESS);
      const std::uint64_t before = reserved();
      EXPECT_GE(before, kept);
      CUdeviceptr first = 0, second = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &first, little), CUDA_SUCCESS);
      EXPECT_EQ(reserved(), before) << "there is room for both";
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &second, much), CUDA_SUCCESS);
      EXPECT_EQ(reserved(), budget != 0 ? 0 : before);
      driver_call("cuMemFree_v2", first);
      driver_call("cuMemFree_v2", second);
    });
    // Memory of the tenant's store counts until the device has come to an event behind its work.
    EXPECT_TRUE(comes_true([&] { return metrics_of(tenant).held_bytes == 0; }));
  }
}

TEST_P(PoolsTest, CurrentPoolOfATenantIsItsOwn) {
  CUmemoryPool real = nullptr;
  ASSERT_EQ(raw.call("cuDeviceGetMemPool", &real, 0), CUDA_SUCCESS);
  Tenant first = open(broker, "first", GetParam());
  Tenant second = open(broker, "second", GetParam());
  CUmemoryPool theirs = second.run(0, [&] { return make_pool(); });
  first.run(0, [&] {
    const CUmemoryPool pool = make_pool();
    EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, pool), CUDA_SUCCESS);
    EXPECT_EQ(current_pool(), pool);
    EXPECT_EQ(pool_of(allocate(mib)), pool);
    EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, theirs), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(driver_call("cuMemPoolDestroy", pool), CUDA_SUCCESS);
    EXPECT_EQ(current_pool(), default_pool());
    if (broker.devices().size() > 1) {
      EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, make_pool(1)), CUDA_ERROR_INVALID_VALUE);
    }
  });
  EXPECT_NE(second.run(0, [&] { return current_pool(); }), real);
  CUmemoryPool now = nullptr;
  raw.call("cuDeviceGetMemPool", &now, 0);
  EXPECT_EQ(now, real);
}

// Whatever became of the context that it was allocated in.
TEST_P(PoolsTest, PoolMemoryIsGivenBackWhenTheTenantCloses) {
  Tenant watcher = open(broker, "watcher", LeaseKind::shared);
  for (const bool loses_its_lease : {false, true}) {
    Tenant tenant = open(broker, "leaks", GetParam());
    tenant.run(0, [&] {  // what the first use takes for good
      EXPECT_EQ(driver_call("cuMemFree_v2", allocate(mib)), CUDA_SUCCESS);
    });
    const std::size_t before = free_memory(watcher);
    tenant.run(0, [&] {
      ASSERT_NE(allocate(96 * mib), 0U);
      ASSERT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
    });
    EXPECT_LE(free_memory(watcher), before - 64 * mib);
    EXPECT_EQ(held(tenant, "device memory").bytes, 96 * mib);
    if (loses_its_lease) lose_lease(tenant);
    tenant.close();
    EXPECT_GE(free_memory(watcher) + 32 * mib, before) << loses_its_lease;
  }
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x device memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("memory pool"))));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, PoolsTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::green, LeaseKind::private_own),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_F(RulesTest, PoolAllocationBeyondTheBudgetIsRefused) {
  Tenant poor = open(broker, "poor", LeaseKind::green, 4 * mib);
  poor.run(0, [&] {
    CUdeviceptr address = 0;
    const CUstream none = nullptr;
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 3 * mib, none), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 2 * mib, none), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(driver_call("cuMemFreeAsync", address, none), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 2 * mib, none), CUDA_SUCCESS);
  });
}

TEST_F(RulesTest, TrimOfGraphMemoryByATenantIsIgnored) {
  Tenant tenant = open(broker, "trims", LeaseKind::green);
  tenant.run(0, [&] {
    std::uint64_t bytes = 0;
    EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 99), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(driver_call("cuDeviceGetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                          static_cast<void*>(&bytes)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDeviceSetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                          static_cast<void*>(&bytes)),
              CUDA_ERROR_NOT_PERMITTED);
  });
  EXPECT_THAT(said(), Contains(HasSubstr("cuDeviceGraphMemTrim: ignored")));
  EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 0), CUDA_SUCCESS) << "the host's is real";
}

}  // namespace
}  // namespace ctxbroker
