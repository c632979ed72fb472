// SPDX-License-Identifier: Apache-2.0
// Which device plug-ins are placed on. Needs two devices: of the software device the environment of
// these tests gives two.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

const Placement round_robin(PlacementRule::round_robin);
const Placement most_free_memory(PlacementRule::most_free_memory);

class PlacementTest : public BrokerTest {
 protected:
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices";
  }

  // Three libraries with the same plug-ins: three tenants.
  PluginInstance on(std::optional<Placement> device, const char* library,
                    const char* plugin = "affine") {
    InstanceOptions options;
    options.device = device;
    options.lease = LeaseChoice(LeaseKind::shared);  // says nothing about placement
    return broker.create(broker.load(test_plugin(library)), plugin, options);
  }
  static int device_of(const PluginInstance& instance) { return instance.lease().device; }
  int devices() const { return static_cast<int>(broker.devices().size()); }
};

TEST_F(PlacementTest, RoundRobinTakesTenantsInTurnAndSaysSo) {
  const PluginInstance first = on(round_robin, "behaviours");
  const PluginInstance second = on(round_robin, "behaviours_twin");
  const PluginInstance third = on(round_robin, "wishes");
  EXPECT_EQ(device_of(first), 0);
  EXPECT_EQ(device_of(second), 1);
  EXPECT_EQ(device_of(third), 2 % devices());
  ASSERT_EQ(said("placement").size(), 3U);
  EXPECT_EQ(said("placement")[1], "on device 1: the host asked for round-robin");
}

TEST_F(PlacementTest, TenantStaysOnOneDeviceUnlessAnotherIsNamed) {
  const PluginInstance first = on(round_robin, "behaviours");
  const PluginInstance second = on(round_robin, "behaviours_twin");
  ASSERT_EQ(device_of(second), 1);
  const PluginInstance named = on(Placement(0), "behaviours_twin");
  EXPECT_EQ(device_of(named), 0);
  for (const Placement& rule : {round_robin, most_free_memory}) {
    EXPECT_EQ(device_of(on(rule, "behaviours", "bias")), 0);
    EXPECT_EQ(device_of(on(rule, "behaviours_twin", "bias")), 1) << "where the rule put it first";
  }
  EXPECT_EQ(device_of(on({}, "behaviours_twin", "bias")), 1);
}

TEST_F(PlacementTest, DefaultDeviceIsTheTenantsElseDeviceZero) {
  EXPECT_EQ(device_of(on({}, "behaviours")), 0);
  const PluginInstance named = on(Placement(1), "behaviours");
  EXPECT_EQ(device_of(on({}, "behaviours", "bias")), 1);
  EXPECT_EQ(device_of(on({}, "behaviours_twin")), 0) << "another tenant";
}

TEST_F(PlacementTest, MostFreeMemoryComparesDevicesInUse) {
  for (int device = 0; device < devices(); ++device) broker.use_device(device);
  // All but one hold a megabyte; what counts is not the number of leases, which is the same.
  std::vector<PluginInstance> holders;
  const int free_one = devices() - 1;
  for (int device = 0; device < devices(); ++device) {
    holders.push_back(on(Placement(device), "behaviours", "megabyte"));
    if (device != free_one) holders.back().activate(test_sizes);
  }
  EXPECT_EQ(device_of(on(most_free_memory, "behaviours_twin")), free_one);
  holders.back().activate(test_sizes);
  holders.front().deactivate();
  EXPECT_EQ(device_of(on(most_free_memory, "behaviours_twin")), 0);
}

TEST_F(PlacementTest, MostFreeMemoryTouchesNoUnusedDevice) {
  const RawDriver driver(broker.driver().path);
  const int chosen = device_of(on(most_free_memory, "behaviours"));
  for (int device = 0; device < devices(); ++device) {
    EXPECT_FALSE(broker.shield(device).in_use && device != chosen);
    if (device != chosen) {
      EXPECT_FALSE(driver.primary_is_active(device)) << device;
    }
  }
  // Wholly free beats in use.
  const PluginInstance first = on(Placement(chosen), "behaviours");
  const PluginInstance second = on(most_free_memory, "behaviours_twin");
  EXPECT_NE(device_of(second), chosen);
  EXPECT_TRUE(driver.primary_is_active(device_of(second)));
}

TEST_F(PlacementTest, ThePolicyPlacesWhatTheHostLeavesOpen) {
  BrokerOptions governed_options = options();
  governed_options.policy = parse_policy(R"({
    "schema": "ctxbroker.policy/1",
    "for_all": {"placement": "round-robin"},
    "by_id": {"com.example.test.bias": {"placement": 1}}
  })",
                                         "test");
  Broker governed = Broker::open(governed_options);
  const PluginLibrary one = governed.load(test_plugin("behaviours"));
  const PluginLibrary two = governed.load(test_plugin("behaviours_twin"));
  const PluginInstance affine = governed.create(one, "affine");
  EXPECT_EQ(device_of(affine), 0);
  EXPECT_EQ(device_of(governed.create(one, "bias")), 1) << "by its id";
  EXPECT_EQ(device_of(governed.create(two, "affine")), 1) << "in turn";
  InstanceOptions named;
  named.device = Placement(0);
  EXPECT_EQ(device_of(governed.create(one, "bias", named)), 0) << "the host decides";
}

}  // namespace
}  // namespace ctxbroker
