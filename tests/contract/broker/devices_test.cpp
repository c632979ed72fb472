// Several devices: leases name theirs, chains cross from one to the other, and what happens on one
// leaves the other alone. Skipped where the driver has one device only.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"
#include "raw_driver.hpp"

namespace ctxbroker {
namespace {

using Kinds = std::tuple<LeaseKind, LeaseKind>;

class DevicesTest : public BrokerTest, public ::testing::WithParamInterface<Kinds> {
 protected:
  DevicesTest() : driver(broker.driver().path) {}
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  }
  PluginInstance on(int device, const char* library, LeaseKind kind) {
    PluginInstance instance =
        broker.create(broker.load(test_plugin(library)), "affine", {device, kind, 0});
    instance.activate(test_sizes);
    return instance;
  }
  RawDriver driver;
};

TEST_P(DevicesTest, AChainCrossesFromDeviceToDeviceAndBack) {
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

INSTANTIATE_TEST_SUITE_P(
    Kinds, DevicesTest,
    ::testing::Combine(
        ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
        ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green)),
    [](const auto& test) {
      return std::string(to_string(std::get<0>(test.param))) + "_then_" +
             to_string(std::get<1>(test.param));
    });

TEST_P(DevicesTest, PeerAccessIsEnabledOrRefusedWithTheReason) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {first});
  static_cast<void>(second);
  if (!driver.can_access_peer(0, 1)) {
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 1); }),
                ::testing::HasSubstr("cannot use memory of device 1"));
    return;
  }
  const std::uint64_t there = tenant.allocate(4096, 1);
  tenant.enable_peer_access(0, 1);
  tenant.enable_peer_access(0, 1);  // twice is no error
  EXPECT_EQ(tenant.run(0, [&] { return driver.fill(there, 7, 4096); }), CUDA_SUCCESS);
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 0); }),
              ::testing::HasSubstr("device 0"));
}

class TwoDevicesTest : public DevicesTest {};

TEST_P(TwoDevicesTest, AResetOfAnUnusedDeviceIsNobodysLossAndADeviceInUseIsShielded) {
  PluginInstance one = on(0, "behaviours", LeaseKind::green);
  EXPECT_FALSE(driver.primary_is_active(1)) << "not in use, not touched";
  driver.retain_primary(1);
  EXPECT_EQ(driver.on_device("cuDevicePrimaryCtxReset_v2", 1), CUDA_SUCCESS);
  EXPECT_FALSE(driver.primary_is_active(1)) << "no shield on a device that the broker does not use";
  driver.on_device("cuDevicePrimaryCtxRelease_v2", 1);
  EXPECT_NE(driver.on_device("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
  EXPECT_EQ(run({&one})[3], 3.0F);
}

INSTANTIATE_TEST_SUITE_P(One, TwoDevicesTest,
                         ::testing::Values(Kinds{LeaseKind::green, LeaseKind::green}));

}  // namespace
}  // namespace ctxbroker
