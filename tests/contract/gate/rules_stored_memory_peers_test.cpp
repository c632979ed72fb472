// SPDX-License-Identifier: Apache-2.0
// Peer access to device memory from a pool of the tenant's own, as to the driver's memory.
#include <cstdint>

#include "rules_fixture.hpp"
#include "store_support.hpp"
#include "support/kernels.hpp"

namespace ctxbroker {
namespace {

class StoredMemoryPeersTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (!has_memory_pools(raw)) GTEST_SKIP() << "the device has no memory pools";
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
    int can = 0;
    raw.call("cuDeviceCanAccessPeer", &can, 0, 1);
    if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
    ASSERT_EQ(raw.call("cuDevicePrimaryCtxRetain", &there, 1), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (there != nullptr) raw.call("cuDevicePrimaryCtxRelease_v2", 1);
  }
  Tenant open_pooled(const char* name) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.memory = MemorySource::pool;
    return broker.open_tenant(name, options);
  }
  static CUdeviceptr take_on(int device, Tenant& tenant) {
    return tenant.run(device, [] {
      CUdeviceptr address = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
      return address;
    });
  }
  bool is_open_to(int device, CUdeviceptr address) const {
    CUmemoryPool pool = nullptr;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    const Entered entered(raw, there);
    EXPECT_EQ(raw.call("cuPointerGetAttribute", static_cast<void*>(&pool),
                       CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
              CUDA_SUCCESS);
    EXPECT_EQ(raw.call("cuMemPoolGetAccess", &access, pool, &where), CUDA_SUCCESS);
    return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  // Writes the word with a kernel on device 0.
  static void write(Tenant& tenant, CUdeviceptr to, std::uint32_t word) {
    tenant.run(0, [&] {
      CUmodule module = nullptr;
      CUfunction kernel = nullptr;
      ASSERT_EQ(driver_call("cuModuleLoadData", &module, static_cast<const void*>(fill_ptx)),
                CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuModuleGetFunction", &kernel, module, "fill"), CUDA_SUCCESS);
      std::uint32_t count = 1;
      void* arguments[] = {&to, &word, &count};
      constexpr CUstream stream = nullptr;
      constexpr void** extra = nullptr;
      EXPECT_EQ(driver_call("cuLaunchKernel", kernel, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream,
                            &arguments[0], extra),
                CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuModuleUnload", module), CUDA_SUCCESS);
    });
  }
  static std::uint32_t read(Tenant& tenant, CUdeviceptr from) {
    std::uint32_t word = 0;
    tenant.run(1, [&] {
      EXPECT_EQ(driver_call("cuMemcpyDtoH_v2", static_cast<void*>(&word), from, sizeof word),
                CUDA_SUCCESS);
    });
    return word;
  }
  CUcontext there = nullptr;  // the primary of device 1
};

INSTANTIATE_TEST_SUITE_P(Kinds, StoredMemoryPeersTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return to_string(one.param); });

TEST_P(StoredMemoryPeersTest, AccessReachesMemoryFromBeforeAndFromLater) {
  Tenant tenant = open_pooled("tenant");
  Tenant later = open_pooled("later");
  const CUdeviceptr first = take_on(1, tenant);
  EXPECT_FALSE(is_open_to(0, first)) << "a control";
  const auto enable = [&] {
    return tenant.run(0, [&] { return driver_call("cuCtxEnablePeerAccess", there, 0U); });
  };
  EXPECT_EQ(enable(), CUDA_SUCCESS);
  EXPECT_EQ(enable(), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  const CUdeviceptr second = take_on(1, tenant), of_new_store = take_on(1, later);
  std::uint32_t word = 41;
  for (const CUdeviceptr address : {first, second, of_new_store}) {
    ASSERT_TRUE(is_open_to(0, address)) << "the kernel would end CUDA in the process";
    if (address == of_new_store) continue;  // this is a neighbour's memory
    write(tenant, address, ++word);
    EXPECT_EQ(read(tenant, address), word);
  }
  EXPECT_FALSE(is_open_to(1, take_on(0, tenant)))
      << "access works only in the direction that was enabled";
  EXPECT_EQ(tenant.run(0, [&] { return driver_call("cuCtxDisablePeerAccess", there); }),
            CUDA_SUCCESS);
}

TEST_P(StoredMemoryPeersTest, AccessThatTheHostEnablesReachesIt) {
  Tenant tenant = open_pooled("tenant");
  const CUdeviceptr first = take_on(1, tenant);
  tenant.enable_peer_access(0, 1);
  tenant.enable_peer_access(0, 1);  // twice is no error
  ASSERT_TRUE(is_open_to(0, first));
  write(tenant, first, 7);
  EXPECT_EQ(read(tenant, first), 7U);
}

}  // namespace
}  // namespace ctxbroker
