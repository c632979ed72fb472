// SPDX-License-Identifier: Apache-2.0
// Several devices: leases name theirs, chains cross from one to the other, and what happens on one
// leaves the other alone. Skipped where the driver has one device only.
#include <cuda.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ctxbroker/host_memory.hpp"
#include "devices_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_P(DevicesTest, AGraphCrossesFromDeviceToDeviceAndBack) {
  const auto [first, second] = GetParam();
  PluginInstance one = on(0, "behaviours", first), two = on(1, "behaviours_twin", second),
                 three = on(0, "behaviours", first);
  EXPECT_EQ(one.lease().device, 0);
  EXPECT_EQ(two.lease().device, 1);
  PluginInstance alone = on(0, "wishes", LeaseKind::shared);
  EXPECT_EQ(run({&one, &two, &three}, 33, 17), run({&alone, &alone, &alone}, 33, 17))
      << "the same as on one device";
  EXPECT_GT(two.metrics().device_seconds, 0);
}

TEST_P(DevicesTest, ALossOnOneDeviceLeavesTheOtherAlone) {
  const auto [first, second] = GetParam();
  PluginInstance one = on(0, "behaviours", first), two = on(1, "behaviours", second);
  EXPECT_NE(one.lease().context, two.lease().context);
  const std::uint64_t generation = two.lease().generation;
  broker.force_loss(one.lease().tenant, 0, "a test");
  EXPECT_EQ(one.lease().state, LeaseState::lost);
  EXPECT_EQ(two.lease().state, LeaseState::ready);
  run({&one, &two});
  EXPECT_EQ(two.lease().generation, generation);
}

// It is registered once, in the primary context of one device.
TEST_P(DevicesTest, HostMemoryServesBothDevices) {
  const auto [first, second] = GetParam();
  PluginInstance one = on(0, "behaviours", first), two = on(1, "behaviours_twin", second);
  const HostMemory memory = broker.host_memory(3 * sizeof(float[4]));
  ASSERT_TRUE(memory.is_registered());
  float* const pixels = static_cast<float*>(memory.data());
  float own[4] = {1, 2, 3, 4}, expected[4] = {};
  std::copy_n(own, 4, pixels);
  for (const auto& stages : {std::vector{&one}, {&two}, {&one, &two}, {&two, &one}}) {
    Graph graph(broker, stages, test_sizes);
    graph.process(own, expected, {});
    std::fill_n(pixels + 4, 4, -1.0F);
    const std::uint64_t job = graph.submit({{pixels}, {pixels + 4}}, {});
    while (!graph.is_done(job)) std::this_thread::yield();
    EXPECT_TRUE(std::equal(expected, expected + 4, pixels + 4)) << "before finish";
    EXPECT_EQ(graph.finish(job), JobOutcome::done);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DevicesTest, ::testing::Combine(lease_kinds, lease_kinds),
                         kinds_name);

// Memory by device, strikes once for all of them.
TEST_P(DevicesTest, ATenantHasARowOfTheLeaseTableForEachDevice) {
  const auto [kind, beside] = GetParam();
  Tenant tenant = broker.open_tenant("both", {LeaseChoice(kind)});
  Tenant other = broker.open_tenant("one", {LeaseChoice(beside)});
  static_cast<void>(other.allocate(512, 1));
  for (const int device : {1, 0}) {
    static_cast<void>(tenant.allocate(4096U << device, device));
    tenant.run(device, [&] { driver.push(tenant.lease(device).context); });
  }
  const auto generations = [&] {
    std::vector<std::tuple<std::string, int, std::uint64_t>> rows;
    for (const LeaseInfo& row : broker.leases()) {
      rows.emplace_back(row.tenant_name, row.device, row.generation);
    }
    return rows;
  };
  const auto expected = [&] {
    return std::vector<std::tuple<std::string, int, std::uint64_t>>{
        {"both", 0, tenant.lease(0).generation},
        {"both", 1, tenant.lease(1).generation},
        {"one", 1, other.lease(1).generation}};
  };
  const auto before = expected();
  EXPECT_EQ(generations(), before);
  EXPECT_NE(tenant.lease(0).context, tenant.lease(1).context);
  for (const TenantMetrics& metrics : broker.metrics().tenants) {
    if (metrics.id != tenant.id()) continue;
    EXPECT_EQ(metrics.strikes, 2U);
    ASSERT_EQ(metrics.leases.size(), 2U);
    for (const LeaseMetrics& lease : metrics.leases) {
      EXPECT_EQ(lease.memory_bytes, 4096U << lease.device) << lease.device;
      EXPECT_EQ(lease.generation, tenant.lease(lease.device).generation);
    }
  }
  ASSERT_TRUE(broker.force_loss(tenant.id(), 1, "a test"));
  { const Guard next(tenant, 1); }
  EXPECT_EQ(generations(), expected());
  EXPECT_EQ(std::get<2>(generations()[0]), std::get<2>(before[0])) << "no loss of the other's";
  EXPECT_GT(std::get<2>(generations()[1]), std::get<2>(before[1]));
  tenant.close();
  EXPECT_EQ(generations(), (std::vector{before[2]}));
}

TEST_P(DevicesTest, PeerAccessIsEnabledOrRefusedWithTheReason) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)});
  static_cast<void>(second);
  if (!driver.can_access_peer(0, 1)) {
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 1); }),
                HasSubstr("cannot use memory of device 1"));
    return;
  }
  const std::uint64_t there = tenant.allocate(4096, 1);
  tenant.enable_peer_access(0, 1);
  tenant.enable_peer_access(0, 1);  // twice is no error
  EXPECT_EQ(tenant.run(0, [&] { return driver.fill(there, 7, 4096); }), CUDA_SUCCESS);
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 0); }),
              HasSubstr("device 0"));
}

// A write of one device that comes after the other one's memory is free would be a fault, and end
// CUDA for everybody in the process.
TEST_P(DevicesTest, MemoryIsGivenBackWhenTheOtherDeviceHasDoneWithIt) {
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  for (const bool closes : {false, true}) {
    Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
           other = broker.open_tenant("o", {LeaseChoice(second)});
    const CUdeviceptr there = tenant.allocate(4096, 1);
    tenant.enable_peer_access(0, 1);
    tenant.run(0, [&] { store_late(there); });
    closes ? tenant.close() : tenant.release(there);
    for (const int device : {0, 1}) {
      EXPECT_EQ(other.run(device, [&] { return driver.synchronize(); }), CUDA_SUCCESS) << closes;
    }
  }
}

// The control: the same by the driver's own call.
TEST_P(DevicesTest, DISABLED_MemoryThatIsFreedUnderAWriteEndsCuda) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         other = broker.open_tenant("o", {LeaseChoice(second)});
  other.lease(1);
  const CUdeviceptr there = tenant.allocate(4096, 1);
  tenant.enable_peer_access(0, 1);
  tenant.run(0, [&] { store_late(there); });
  EXPECT_EQ(tenant.run(1, [&] { return driver.call("cuMemFree_v2", there); }), CUDA_SUCCESS);
  EXPECT_NE(tenant.run(0, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
  EXPECT_NE(other.run(1, [&] { return driver.synchronize(); }), CUDA_SUCCESS) << "for all";
}

TEST_P(DevicesTest, MemoryFreedUnderAWriteIsAFault) {
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  const std::string kinds =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();  // with a slash before
  const ChildResult child =
      run_child("Kinds/DevicesTest.DISABLED_MemoryThatIsFreedUnderAWriteEndsCuda" +
                kinds.substr(kinds.find('/')));
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

// The tenant uses the driver API, and its context need not be the primary one. It asks the driver
// which context owns the memory, and enables peer access to that context. Past the gate, the driver
// knows that of its own memory only: memory of a pool belongs to no context.
TEST_P(DevicesTest, ByTheDriverApiOneLeasesKernelsReachTheOthersMemory) {
  reopen_with(MemorySource::driver);
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  Tenant here = broker.open_tenant("here", {LeaseChoice(first)}),
         there = broker.open_tenant("there", {LeaseChoice(second)});
  constexpr std::uint32_t bytes = 4096, value = 0x01020304;
  const CUdeviceptr ours = here.allocate(bytes, 0), theirs = there.allocate(bytes, 1);
  // Neither a fill nor a copy between devices waits for its end.
  there.run(1, [&] {
    ASSERT_EQ(driver.fill(theirs, 7, bytes), CUDA_SUCCESS);
    ASSERT_EQ(driver.synchronize(), CUDA_SUCCESS);
  });
  CUcontext owner = nullptr, own = nullptr;
  int ordinal = -1;
  here.run(0, [&] {
    ASSERT_EQ(driver.call("cuPointerGetAttribute", &owner, CU_POINTER_ATTRIBUTE_CONTEXT, theirs),
              CUDA_SUCCESS);
    ASSERT_EQ(driver.call("cuPointerGetAttribute", &own, CU_POINTER_ATTRIBUTE_CONTEXT, ours),
              CUDA_SUCCESS);
    ASSERT_EQ(
        driver.call("cuPointerGetAttribute", &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, theirs),
        CUDA_SUCCESS);
    EXPECT_EQ(ordinal, 1);
    ASSERT_EQ(driver.call("cuCtxDisablePeerAccess", owner), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ASSERT_EQ(driver.call("cuCtxEnablePeerAccess", owner, 0u), CUDA_SUCCESS);
    EXPECT_EQ(driver.call("cuCtxEnablePeerAccess", owner, 0u),
              CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    store(theirs + 4, value);
    EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(driver.call("cuMemcpyPeer", ours, own, theirs, owner, std::size_t{bytes}),
              CUDA_SUCCESS);
    EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(driver.call("cuCtxDisablePeerAccess", owner), CUDA_SUCCESS);
  });
  const std::uint32_t expected[] = {0x07070707, value, 0x07070707};
  for (const auto& [tenant, device, from] : {std::tuple{&there, 1, theirs}, {&here, 0, ours}}) {
    std::uint32_t words[3] = {};
    auto* const into = static_cast<void*>(words);
    ASSERT_EQ(tenant->run(device,
                          [&, from = from] {
                            return driver.call("cuMemcpyDtoH_v2", into, from, sizeof words);
                          }),
              CUDA_SUCCESS);
    EXPECT_THAT(words, ::testing::ElementsAreArray(expected)) << "device " << device;
  }
}

class TwoDevicesTest : public DevicesTest {};

TEST_P(TwoDevicesTest, AResetOfAnUnusedDeviceIsNobodysLossAndADeviceInUseIsShielded) {
  PluginInstance one = on(0, "behaviours", LeaseKind::green);
  EXPECT_FALSE(driver.primary_is_active(1)) << "not in use, not touched";
  driver.retain_primary(1);
  EXPECT_EQ(driver.call("cuDevicePrimaryCtxReset_v2", 1), CUDA_SUCCESS);
  EXPECT_FALSE(driver.primary_is_active(1)) << "no shield on a device that the broker does not use";
  driver.call("cuDevicePrimaryCtxRelease_v2", 1);
  EXPECT_NE(driver.call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
  EXPECT_EQ(run({&one})[3], 3.0F);
}

INSTANTIATE_TEST_SUITE_P(One, TwoDevicesTest,
                         ::testing::Values(Kinds{LeaseKind::green, LeaseKind::green}));

}  // namespace
}  // namespace ctxbroker
