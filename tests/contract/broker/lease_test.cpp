// SPDX-License-Identifier: Apache-2.0
// Leases against a real driver.
#include <gmock/gmock.h>

#include <optional>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

TEST_F(BrokerTest, SharedLeasesShareOnePrimary) {
  const PluginInstance one = create("affine", LeaseKind::shared);
  const PluginInstance twin = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                            {Placement(0), LeaseChoice(LeaseKind::shared), 0});
  EXPECT_EQ(one.lease().granted.kind, LeaseKind::shared);
  EXPECT_EQ(one.lease().context, twin.lease().context);
  EXPECT_NE(one.lease().tenant, twin.lease().tenant);
  EXPECT_NE(one.lease().generation, twin.lease().generation);
}

TEST_F(BrokerTest, PrivateLeasesAreOnePerTenant) {
  const PluginInstance one = create("affine", LeaseKind::private_own);
  const PluginInstance two = create("bias", LeaseKind::private_own);
  const PluginInstance twin = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                            {Placement(0), LeaseChoice(LeaseKind::private_own), 0});
  EXPECT_EQ(one.lease().granted.kind, LeaseKind::private_own);
  EXPECT_EQ(one.lease().context, two.lease().context) << "one tenant, one lease";
  EXPECT_NE(one.lease().context, twin.lease().context);
}

TEST_F(BrokerTest, LaterLeaseWishGetsTheLeaseInForceWithTheReason) {
  const PluginInstance one = create("affine", LeaseKind::private_own);
  const PluginInstance two = create("affine", LeaseKind::shared);
  EXPECT_EQ(two.lease().context, one.lease().context);
  EXPECT_EQ(two.lease().asked, LeaseChoice(LeaseKind::shared));
  EXPECT_EQ(two.lease().granted.kind, LeaseKind::private_own);
  EXPECT_THAT(two.lease().reason, HasSubstr("has this lease on the device already"));
}

TEST_F(BrokerTest, LaterPartitionWishGetsTheLeaseInForceWithTheReason) {
  const auto partition = [&](unsigned multiprocessors) {
    return broker.create(behaviours(), "affine",
                         {Placement(0), {LeaseKind::green, multiprocessors}, 0});
  };
  const PluginInstance one = partition(8);
  if (one.lease().granted.kind != LeaseKind::green) GTEST_SKIP() << one.lease().reason;
  const auto in_force = HasSubstr("has this lease on the device already: the host asked for green");
  for (const unsigned other : {32u, 0u}) {  // 0: over all, which is not what a partition is
    const PluginInstance two = partition(other);
    EXPECT_EQ(two.lease().context, one.lease().context);
    EXPECT_EQ(two.lease().asked, LeaseChoice(LeaseKind::green, other));
    EXPECT_EQ(two.lease().granted, one.lease().granted);
    EXPECT_THAT(two.lease().reason, in_force) << "green:" << other;
  }
  EXPECT_THAT(partition(8).lease().reason, ::testing::Not(in_force));
  EXPECT_THAT(create("affine").lease().reason, ::testing::Not(in_force)) << "left open";
}

// The partition takes two thirds of the device, so that two generations of it do not fit at once.
TEST_F(BrokerTest, APartitionGoesFromALostLeaseToTheNext) {
  const LeaseChoice most(LeaseKind::green, broker.devices()[0].multiprocessors * 2 / 3);
  std::optional<PluginInstance> instance =
      broker.create(behaviours(), "affine", {Placement(0), most, 0});
  const LeaseInfo first = instance->lease();
  if (first.granted.kind != LeaseKind::green) GTEST_SKIP() << first.reason;
  // The second instance stays in the first generation.
  std::optional<PluginInstance> idle = create("affine");
  Tenant other = broker.open_tenant("other", {most});
  for (int loss = 0; loss < 3; ++loss) {
    EXPECT_TRUE(broker.force_loss(first.tenant, 0, "a test"));
    instance->activate(test_sizes);
    EXPECT_EQ(instance->lease().state, LeaseState::ready);
    EXPECT_EQ(instance->lease().granted, first.granted);
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { other.lease(); }),
                HasSubstr("multiprocessors are free"));
    instance->deactivate();
  }
  idle.reset();
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { other.lease(); }),
              HasSubstr("multiprocessors are free"))
      << "the first generation has ended, and the partition is the last one's";
  instance.reset();
  EXPECT_EQ(other.lease().granted, first.granted);
  EXPECT_TRUE(broker.force_loss(other.id(), 0, "a test"));
  EXPECT_EQ(other.lease().granted, first.granted) << "the same for a tenant of the host's";
}

TEST_F(BrokerTest, APartitionIsNotHadWhereALeaseOverAllIsInForce) {
  const PluginInstance one = create("affine", LeaseKind::green);
  if (one.lease().granted.kind != LeaseKind::green) GTEST_SKIP() << one.lease().reason;
  const PluginInstance two =
      broker.create(behaviours(), "affine", {Placement(0), {LeaseKind::green, 8}, 0});
  EXPECT_THAT(two.lease().reason, HasSubstr("has this lease on the device already"));
}

TEST_F(BrokerTest, LibraryGetsTheStrongestLeaseThatOneOfItsPluginsWishes) {
  // "wishes" has plug-ins that wish private, green and nothing.
  const PluginLibrary wishes = broker.load(test_plugin("wishes"));
  const LeaseInfo by_wish = broker.create(wishes, "affine").lease();
  EXPECT_EQ(by_wish.tenant_name, "wishes");
  EXPECT_EQ(by_wish.asked, LeaseChoice());
  EXPECT_EQ(by_wish.granted.kind, LeaseKind::private_own);
  EXPECT_THAT(by_wish.reason, HasSubstr("plug-in wishes_private wishes private"));
  EXPECT_EQ(
      broker.create(wishes, "wishes_private", {Placement(0), LeaseChoice(LeaseKind::shared), 0})
          .lease()
          .granted.kind,
      LeaseKind::shared)
      << "the host decides";
}

TEST_F(BrokerTest, EveryContextOfALeaseHasItsOwnGeneration) {
  std::uint64_t last = 0;
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::private_own}) {
    const LeaseInfo info = create("affine", kind).lease();
    EXPECT_GT(info.generation, last);
    last = info.generation;
  }
}

TEST_F(BrokerTest, DevicesThatAreNotThereAreRefused) {
  for (const int device : {-1, 1000}) {
    EXPECT_THAT(
        error_text(
            ErrorKind::no_device,
            [&] {
              static_cast<void>(broker.create(behaviours(), "affine", {Placement(device), {}, 0}));
            }),
        HasSubstr("there is no device " + std::to_string(device)));
  }
}

TEST_F(BrokerTest, APluginForANewerDeviceIsRefused) {
  EXPECT_THAT(error_text(ErrorKind::kernel_image, [&] { create("too_new"); }),
              HasSubstr("needs compute capability 999.0"));
}

TEST_F(BrokerTest, CreatingLeasesLeavesTheThreadsStackAlone) {
  const RawDriver driver(broker.driver().path);
  CUcontext own = driver.make_context();
  const auto before = driver.stack();
  {
    const PluginInstance a = active("affine", LeaseKind::private_own);
    const PluginInstance b = active("affine", LeaseKind::shared);
    EXPECT_EQ(driver.stack(), before);
  }
  EXPECT_EQ(driver.stack(), before);
  driver.pop_all();
  driver.destroy_context(own);
}

}  // namespace
}  // namespace ctxbroker
