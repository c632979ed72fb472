// SPDX-License-Identifier: Apache-2.0
// Mapped and physical memory: counted, and its holder's to end.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class MappingTest : public RulesTest {
 protected:
  MappingTest() {
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  void SetUp() override {
    int there = 0;
    raw.call("cuDeviceGetAttribute", &there,
             CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    if (there == 0) GTEST_SKIP() << "the device maps no memory";
    raw.call("cuMemGetAllocationGranularity", &unit,
             static_cast<const CUmemAllocationProp*>(&properties),
             CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    ASSERT_GT(unit, 0U);
    unit = (8 * mib + unit - 1) / unit * unit;
  }
  CUresult create(CUmemGenericAllocationHandle* handle) const {
    return driver_call("cuMemCreate", handle, unit,
                       static_cast<const CUmemAllocationProp*>(&properties), 0ULL);
  }
  CUdeviceptr reserve(std::size_t units) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAddressReserve", &address, units * unit, std::size_t{0},
                          CUdeviceptr{0}, 0ULL),
              CUDA_SUCCESS);
    return address;
  }
  CUresult map(CUdeviceptr address, CUmemGenericAllocationHandle handle) const {
    return driver_call("cuMemMap", address, unit, std::size_t{0}, handle, 0ULL);
  }
  CUresult unmap(CUdeviceptr address, std::size_t units = 1) const {
    return driver_call("cuMemUnmap", address, units * unit);
  }
  CUresult set_access(CUdeviceptr address, CUmemAccess_flags flags) {
    access.flags = flags;
    return driver_call("cuMemSetAccess", address, unit,
                       static_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
  }
  static CUresult release(CUmemGenericAllocationHandle handle) {
    return driver_call("cuMemRelease", handle);
  }
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
  std::size_t unit = 0;  // bytes
};

TEST_F(MappingTest, MappingOfATenantIsRefusedToOthers) {
  Tenant owner = open(broker, "owner", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  owner.run(0, [&] {
    address = reserve(2);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    ASSERT_EQ(set_access(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemsetD8_v2", address, static_cast<unsigned char>(7), unit),
              CUDA_SUCCESS);
  });
  other.run(0, [&] {
    CUmemGenericAllocationHandle taken = 0, own = 0;
    EXPECT_EQ(unmap(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(address, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(release(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuMemRetainAllocationHandle", &taken, reinterpret_cast<void*>(address)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuMemAddressFree", address, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(create(&own), CUDA_SUCCESS);
    EXPECT_EQ(map(address + unit, own), CUDA_ERROR_INVALID_VALUE) << "the neighbour's addresses";
    const CUdeviceptr here = reserve(1);
    EXPECT_EQ(map(here, memory), CUDA_ERROR_INVALID_VALUE) << "the neighbour's memory";
    EXPECT_EQ(map(here, own), CUDA_SUCCESS);
  });
  EXPECT_GE(other.strikes(), 6U);
  owner.run(0, [&] {
    unsigned char byte = 0;
    EXPECT_EQ(driver_call("cuMemcpyDtoH_v2", static_cast<void*>(&byte), address, std::size_t{1}),
              CUDA_SUCCESS);
    EXPECT_EQ(byte, 7);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAddressFree", address, 2 * unit), CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(owner).held_things, 0U);
  EXPECT_EQ(owner.strikes(), 0U);
  // Without the gate the neighbour's mapping can be ended by anybody.
  owner.run(0, [&] {
    address = reserve(1);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(other.run(0, [&] { return raw.call("cuMemUnmap", address, unit); }), CUDA_SUCCESS);
  EXPECT_EQ(owner.run(0, [&] { return map(address, memory); }), CUDA_SUCCESS);
}

// A handle that is taken at an address inside a mapping counts like any other.
TEST_F(MappingTest, ARetainedHandleCountsWhereverInTheMappingItWasTaken) {
  Tenant tenant = open(broker, "counts", LeaseKind::green, 3 * unit / 2);
  tenant.run(0, [&] {
    CUmemGenericAllocationHandle memory = 0, again = 0;
    const CUdeviceptr address = reserve(1);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    ASSERT_EQ(
        driver_call("cuMemRetainAllocationHandle", &again, reinterpret_cast<void*>(address + 4096)),
        CUDA_SUCCESS);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    EXPECT_EQ(create(&memory), CUDA_ERROR_OUT_OF_MEMORY) << "over the budget";
    EXPECT_EQ(release(again), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
  });
}

TEST_F(MappingTest, APartOfAMappingIsNotUnmapped) {
  Tenant tenant = open(broker, "careless", LeaseKind::green);
  tenant.run(0, [&] {
    CUmemGenericAllocationHandle memory = 0;
    const CUdeviceptr address = reserve(2);
    ASSERT_EQ(driver_call("cuMemCreate", &memory, 2 * unit,
                          static_cast<const CUmemAllocationProp*>(&properties), 0ULL),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemMap", address, 2 * unit, std::size_t{0}, memory, 0ULL),
              CUDA_SUCCESS);
    EXPECT_EQ(unmap(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(held(tenant, "memory mapping").count, 1U);
    EXPECT_EQ(unmap(address, 2), CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(MappingTest, ThreadsThatRetainAndReleaseOneHandleLoseNoCount) {
  Tenant tenant = open(broker, "threads", LeaseKind::shared);
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  tenant.run(0, [&] {
    address = reserve(1);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
  });
  std::atomic<int> refused{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        tenant.run(0, [&] {
          for (int i = 0; i < 500; ++i) {
            CUmemGenericAllocationHandle again = 0;
            if (driver_call("cuMemRetainAllocationHandle", &again,
                            reinterpret_cast<void*>(address)) != CUDA_SUCCESS ||
                release(again) != CUDA_SUCCESS) {
              ++refused;
            }
          }
        });
      });
    }
  }
  EXPECT_EQ(refused, 0);
  tenant.run(0, [&] {
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    EXPECT_EQ(held(tenant, "physical memory").count, 0U);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
}

// Released memory is there as long as it is mapped, by whichever mapping.
TEST_F(MappingTest, MemoryCountsUntilItIsNeitherHeldNorMapped) {
  Tenant tenant = open(broker, "counts", LeaseKind::green, 3 * unit / 2);
  tenant.run(0, [&] {
    CUmemGenericAllocationHandle memory = 0, again = 0;
    const CUdeviceptr address = reserve(2);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address + unit, memory), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    ASSERT_EQ(driver_call("cuMemRetainAllocationHandle", &again, reinterpret_cast<void*>(address)),
              CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    EXPECT_EQ(release(again), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    EXPECT_EQ(held(tenant, "physical memory").count, 0U);
    EXPECT_EQ(create(&memory), CUDA_ERROR_OUT_OF_MEMORY) << "over the budget";
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    EXPECT_EQ(unmap(address + unit), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
    EXPECT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit) << "it is held still";
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
  });
}

// The host is not held back, and what it ends is no more in anybody's budget: every mapping in the
// addresses, not the first alone.
TEST_F(MappingTest, MemoryUnmappedByTheHostLeavesTheBudget) {
  Tenant tenant = open(broker, "unmapped", LeaseKind::green);
  CUdeviceptr address = 0;
  tenant.run(0, [&] {
    address = reserve(3);
    for (std::size_t i = 0; i < 3; ++i) {
      CUmemGenericAllocationHandle memory = 0;
      ASSERT_EQ(create(&memory), CUDA_SUCCESS);
      ASSERT_EQ(map(address + i * unit, memory), CUDA_SUCCESS);
      if (i != 1) {
        ASSERT_EQ(release(memory), CUDA_SUCCESS);
      }
    }
  });
  EXPECT_EQ(held(tenant, "memory mapping").count, 3U);
  EXPECT_EQ(metrics_of(tenant).held_bytes, 3 * unit);
  EXPECT_NE(driver_call("cuMemUnmap", address, 2 * unit + unit / 2), CUDA_SUCCESS);
  EXPECT_EQ(held(tenant, "memory mapping").count, 3U) << "nothing was unmapped";
  EXPECT_EQ(unmap(address, 2), CUDA_SUCCESS);
  EXPECT_EQ(held(tenant, "memory mapping").count, 1U);
  EXPECT_EQ(metrics_of(tenant).held_bytes, 2 * unit) << "one is held, and one mapped";
  EXPECT_EQ(unmap(address + 2 * unit), CUDA_SUCCESS);
  EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
  tenant.close();
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

TEST_F(MappingTest, MappedMemoryIsGivenBackWhenTheTenantCloses) {
  Tenant watcher = open(broker, "watcher", LeaseKind::shared);
  for (const LeaseKind kind : {LeaseKind::green, LeaseKind::private_own}) {
    for (const bool loses_its_lease : {false, true}) {
      Tenant tenant = open(broker, "leaks", kind);
      tenant.run(0, [] {});
      const std::size_t before = free_memory(watcher);
      CUdeviceptr address = 0;
      tenant.run(0, [&] {
        CUmemGenericAllocationHandle kept = 0, released = 0;
        address = reserve(4);
        ASSERT_EQ(create(&kept), CUDA_SUCCESS);
        ASSERT_EQ(create(&released), CUDA_SUCCESS);
        ASSERT_EQ(map(address, kept), CUDA_SUCCESS);
        ASSERT_EQ(map(address + unit, released), CUDA_SUCCESS);
        ASSERT_EQ(release(released), CUDA_SUCCESS);
      });
      EXPECT_LE(free_memory(watcher) + 2 * unit, before);
      if (loses_its_lease) lose_lease(tenant);
      tenant.close();
      EXPECT_GE(free_memory(watcher) + unit, before);
      // The addresses are nobody's any more.
      watcher.run(
          0, [&] { EXPECT_NE(raw.call("cuMemAddressFree", address, 4 * unit), CUDA_SUCCESS); });
    }
  }
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 2 x memory mapping, "
                                         "1 x address reservation, 1 x physical memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

}  // namespace
}  // namespace ctxbroker
