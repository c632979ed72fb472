// SPDX-License-Identifier: Apache-2.0
// No reset and no release on any thread destroys the primary context of a device that the broker
// uses. Each with its positive control: without the broker the same calls do destroy it.
#include <gmock/gmock.h>

#include <thread>

#include "broker_fixture.hpp"
#include "support/child_process.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ShieldTest : public BrokerTest {
 protected:
  ShieldTest() : driver(broker.driver().path) {}
  // All the ways in which a plug-in can end the primary; what each returns.
  std::vector<CUresult> attack() const {
    std::vector<CUresult> statuses;
    for (const char* symbol : {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2",
                               "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"}) {
      statuses.push_back(driver.call(symbol, 0));
    }
    return statuses;
  }
  RawDriver driver;
};

// In a process of their own: brokers that other tests leave behind hold the primary too.
class ShieldChildTest : public ShieldTest {};

TEST_F(ShieldTest, ShieldHoldsAgainstResetsAndReleasesOnEveryThread) {
  PluginInstance shared = active("affine", LeaseKind::shared);
  PluginInstance green = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                       {Placement(0), LeaseChoice(LeaseKind::green), 0});
  green.activate(test_sizes);
  if (green.lease().granted.kind != LeaseKind::green) GTEST_SKIP() << green.lease().reason;
  Graph graph(broker, {&shared, &green}, test_sizes);
  float pixel[4] = {0, 0, 0, 1};
  graph.process(pixel, pixel, {});
  attack();
  std::thread(  // one that the broker has never seen
      [this] {
        for (int i = 0; i < 3; ++i) attack();
      })
      .join();
  {
    Tenant tenant = broker.open_tenant("attacker", {LeaseChoice(LeaseKind::green)});
    tenant.run(0, [this] { attack(); });
  }
  graph.process(pixel, pixel, {});
  EXPECT_EQ(shared.lease().state, LeaseState::ready);
  EXPECT_EQ(green.lease().state, LeaseState::ready);
  EXPECT_TRUE(driver.primary_is_active(0));
}

TEST_F(ShieldChildTest, DISABLED_UnshieldedPrimaryIsDestroyedByTheSameCalls) {
  EXPECT_FALSE(driver.primary_is_active(0)) << "nothing has used the device yet";
  for (const char* symbol : {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"}) {
    driver.retain_primary(0);
    EXPECT_TRUE(driver.primary_is_active(0));
    EXPECT_EQ(driver.call(symbol, 0), CUDA_SUCCESS);
    EXPECT_FALSE(driver.primary_is_active(0)) << symbol;
  }
  driver.call("cuDevicePrimaryCtxRelease_v2", 0);  // the retain that outlived the reset
}

TEST_F(ShieldChildTest, DISABLED_AnUnusedDeviceStaysUntouched) {
  static_cast<void>(broker.devices());
  static_cast<void>(broker.leases());
  for (std::size_t i = 0; i < broker.devices().size(); ++i) {
    EXPECT_FALSE(driver.primary_is_active(static_cast<int>(i)));
  }
}

TEST_F(ShieldChildTest, DISABLED_APrimaryThatIsInUseAtOpenIsShieldedAtOnce) {
  driver.retain_primary(0);
  {
    Broker second = Broker::open(options());
    attack();
    EXPECT_TRUE(driver.primary_is_active(0));
    second.close();
  }
  // The broker gave back what it took, and only that; the attack took ours.
  driver.call("cuDevicePrimaryCtxRelease_v2", 0);
  driver.call("cuDevicePrimaryCtxReset_v2", 0);
  EXPECT_FALSE(driver.primary_is_active(0));
}

TEST_F(ShieldTest, TwoBrokersInOneProcessEndInAnyOrder) {
  Tenant one = broker.open_tenant("one");
  static_cast<void>(one.lease());
  {
    Broker second = Broker::open(options());
    Tenant two = second.open_tenant("two");
    static_cast<void>(two.lease());
  }
  attack();
  EXPECT_TRUE(driver.primary_is_active(0));
  one.run(0, [] {});
}

TEST_F(ShieldChildTest, DISABLED_AClosedBrokerHoldsNothingAndAnotherCanBeOpened) {
  for (int i = 0; i < 3; ++i) {
    Broker again = Broker::open(options());
    Tenant tenant = again.open_tenant("filter");
    static_cast<void>(tenant.lease());
    tenant.close();
    again.close();
    EXPECT_FALSE(driver.primary_is_active(0));
  }
}

// A driver without green contexts, or one that makes none: nothing keeps the primary. Its end is
// known at the next guard and the next job, before anything is done with its handle.
TEST_F(ShieldChildTest, DISABLED_NextUseAfterResetOfAnUnshieldedPrimaryMakesItAnew) {
  const SoftwareControls controls(broker.driver().path);
  controls.fail_call("cuGreenCtxCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::shared)});
  PluginInstance instance = active("affine", LeaseKind::shared);
  Graph graph(broker, {&instance}, test_sizes);
  float expected[4] = {1, 2, 3, 4};
  graph.process(expected, expected, {});
  ASSERT_FALSE(broker.shield(0).up);
  EXPECT_THAT(broker.shield(0).reason, HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
  const LeaseInfo old = tenant.lease();

  std::thread([&] {
    EXPECT_EQ(driver.call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
  }).join();
  EXPECT_FALSE(driver.primary_is_active(0));
  EXPECT_EQ(instance.lease().state, LeaseState::lost);
  {
    const Guard guard(tenant);
    EXPECT_EQ(tenant.lease().state, LeaseState::ready);
    EXPECT_GT(tenant.lease().generation, old.generation);
    EXPECT_TRUE(driver.primary_is_active(0)) << "made anew";
  }
  float pixel[4] = {1, 2, 3, 4};
  graph.process(pixel, pixel, {});
  EXPECT_THAT(pixel, ::testing::ElementsAreArray(expected));
  EXPECT_THAT(said("device"), Contains(HasSubstr("primary context was destroyed")).Times(1));
  EXPECT_TRUE(broker.shield(0).up) << "the next life has one again";

  // A guard does not query the state of a primary context that is shielded. The query would cost
  // every guard a call.
  controls.start_counting();
  { const Guard guard(tenant); }
  EXPECT_EQ(controls.call_count("cuDevicePrimaryCtxGetState"), 0u);
  EXPECT_GT(controls.call_count("cuCtxPushCurrent_v2"), 0u);
  controls.stop_counting();
}

TEST_F(ShieldTest, NextUseAfterResetOfAnUnshieldedPrimaryMakesItAnew) {
  if (broker.driver().kind != DriverChoice::software) {
    GTEST_SKIP() << "only the software device can be told to make no green context";
  }
  const ChildResult child =
      run_child("ShieldChildTest.DISABLED_NextUseAfterResetOfAnUnshieldedPrimaryMakesItAnew");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

class InAFreshProcess : public ::testing::TestWithParam<const char*> {};

TEST_P(InAFreshProcess, ChildTestPasses) {
  const ChildResult child = run_child(std::string("ShieldChildTest.DISABLED_") + GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(Shield, InAFreshProcess,
                         ::testing::Values("UnshieldedPrimaryIsDestroyedByTheSameCalls",
                                           "AnUnusedDeviceStaysUntouched",
                                           "APrimaryThatIsInUseAtOpenIsShieldedAtOnce",
                                           "AClosedBrokerHoldsNothingAndAnotherCanBeOpened"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ctxbroker
