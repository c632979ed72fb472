// SPDX-License-Identifier: Apache-2.0
#include "plugin/instance_settings.hpp"

#include <gmock/gmock.h>

#include "plugin/placer.hpp"

namespace ctxbroker::detail {
namespace {

using Kind = LeaseKind;

using Ids = std::vector<std::string>;

PluginDescription plugin(const std::string& id) {
  PluginDescription description;
  description.id = id;
  return description;
}

PluginPolicy lease(LeaseChoice choice) {
  PluginPolicy policy;
  policy.lease = choice;
  return policy;
}

TEST(LeaseOrderTest, HostThenIdThenAllThenNobody) {
  const Ids plugins{"a.x"};
  Policy policy;
  EXPECT_EQ(lease_order({}, policy, plugins).choice, LeaseChoice(Kind::automatic));
  policy.for_all.lease = LeaseChoice(Kind::shared);
  EXPECT_EQ(lease_order({}, policy, plugins).choice, LeaseChoice(Kind::shared));
  EXPECT_EQ(lease_order({}, policy, plugins).by, "the policy for all plug-ins");
  policy.by_id["a.x"] = lease({Kind::green, 16});
  EXPECT_EQ(lease_order({}, policy, plugins).choice, LeaseChoice(Kind::green, 16));
  EXPECT_EQ(lease_order({}, policy, plugins).by, "the policy for a.x");
  EXPECT_EQ(lease_order(LeaseChoice(Kind::private_own), policy, plugins).choice,
            LeaseChoice(Kind::private_own));
  EXPECT_EQ(lease_order(LeaseChoice(Kind::private_own), policy, plugins).by, "the host");
}

TEST(LeaseOrderTest, PolicyOfOtherPluginsDoesNotCount) {
  Policy policy;
  policy.by_id["a.y"] = lease(LeaseChoice(Kind::private_own));
  EXPECT_EQ(lease_order({}, policy, Ids{"a.x"}).choice, LeaseChoice(Kind::automatic));
}

TEST(LeaseOrderTest, AutoByIdKeepsThePolicyForAllAway) {
  Policy policy;
  policy.for_all.lease = LeaseChoice(Kind::private_own);
  policy.by_id["a.x"] = lease(LeaseChoice(Kind::automatic));
  EXPECT_EQ(lease_order({}, policy, Ids{"a.x"}).choice, LeaseChoice(Kind::automatic));
  EXPECT_EQ(lease_order({}, policy, Ids{"a.x", "a.y"}).choice, LeaseChoice(Kind::private_own))
      << "for a.y it holds";
  policy.by_id["a.x"] = {};
  EXPECT_EQ(lease_order({}, policy, Ids{"a.x"}).choice, LeaseChoice(Kind::private_own))
      << "an entry that is silent about leases";
}

TEST(LeaseOrderTest, WithinARankPrivateBeatsGreenBeatsShared) {
  Policy policy;
  policy.for_all.lease = LeaseChoice(Kind::private_own);
  policy.by_id["a.x"] = lease(LeaseChoice(Kind::shared));
  policy.by_id["a.y"] = lease({Kind::green, 8});
  const Ids both{"a.x", "a.y", "a.silent"};
  EXPECT_EQ(lease_order({}, policy, both).choice, LeaseChoice(Kind::green, 8))
      << "and no rank below counts";
  EXPECT_EQ(lease_order({}, policy, both).by, "the policy for a.y");
  policy.by_id["a.z"] = lease(LeaseChoice(Kind::private_own));
  EXPECT_EQ(lease_order({}, policy, Ids{"a.z", "a.x", "a.y"}).choice,
            LeaseChoice(Kind::private_own));
}

TEST(PlacementOrderTest, HostThenIdThenAllThenNobody) {
  const PluginDescription x = plugin("a.x");
  InstanceOptions options;
  Policy policy;
  EXPECT_FALSE(placement_order(options, policy, x).placement);
  policy.for_all.placement = Placement(PlacementRule::round_robin);
  EXPECT_EQ(placement_order(options, policy, x).placement, Placement(PlacementRule::round_robin));
  policy.by_id["a.x"].placement = Placement(2);
  EXPECT_EQ(placement_order(options, policy, x).placement, Placement(2));
  EXPECT_EQ(placement_order(options, policy, x).by, "the policy for a.x");
  options.device = Placement(PlacementRule::most_free_memory);
  EXPECT_EQ(placement_order(options, policy, x).placement,
            Placement(PlacementRule::most_free_memory));
}

TEST(MemoryBudgetTest, HostThenIdThenAllThenNone) {
  const PluginDescription x = plugin("a.x");
  InstanceOptions options;
  Policy policy;
  EXPECT_EQ(memory_budget(options, policy, x), 0U);
  policy.for_all.memory_budget = 100;
  EXPECT_EQ(memory_budget(options, policy, x), 100U);
  policy.by_id["a.x"].memory_budget = 0;
  EXPECT_EQ(memory_budget(options, policy, x), 0U) << "said, not silent";
  policy.by_id["a.x"].memory_budget = 50;
  EXPECT_EQ(memory_budget(options, policy, x), 50U);
  options.memory_budget = 0;
  EXPECT_EQ(memory_budget(options, policy, x), 0U);
  options.memory_budget = 7;
  EXPECT_EQ(memory_budget(options, policy, x), 7U);
}

TEST(DriverMemoryBudgetTest, HostThenTheSmallestOfThePlugins) {
  Policy policy;
  EXPECT_EQ(driver_memory_budget(0, policy, {"a.x", "a.y"}), 0U);
  policy.for_all.driver_memory_budget = 100;
  EXPECT_EQ(driver_memory_budget(0, policy, {"a.x", "a.y"}), 100U);
  policy.by_id["a.x"].driver_memory_budget = 0;
  EXPECT_EQ(driver_memory_budget(0, policy, {"a.x"}), 0U) << "said, not silent";
  EXPECT_EQ(driver_memory_budget(0, policy, {"a.x", "a.y"}), 100U);
  policy.by_id["a.y"].driver_memory_budget = 50;
  policy.by_id["a.x"].driver_memory_budget = 60;
  EXPECT_EQ(driver_memory_budget(0, policy, {"a.x", "a.y"}), 50U);
  EXPECT_EQ(driver_memory_budget(7, policy, {"a.x", "a.y"}), 7U);
}

TEST(MemorySourceOrderTest, HostThenIdThenAllThenTheDefault) {
  constexpr auto open = MemorySource::automatic, driver = MemorySource::driver,
                 pool = MemorySource::pool;
  const Ids plugins{"a.x"};
  Policy policy;
  EXPECT_EQ(memory_source(open, policy, plugins), default_memory_source);
  EXPECT_NE(default_memory_source, open);
  for (const auto all : {driver, pool}) {
    policy.for_all.memory = all;
    EXPECT_EQ(memory_source(open, policy, plugins), all);
  }
  policy.by_id["a.x"].memory = driver;
  EXPECT_EQ(memory_source(open, policy, plugins), driver) << "for_all has a pool";
  policy.by_id["a.x"].memory = pool;
  policy.for_all.memory = driver;
  EXPECT_EQ(memory_source(open, policy, plugins), pool);
  EXPECT_EQ(memory_source(driver, policy, plugins), driver);
  policy.by_id["a.x"].memory = driver;
  EXPECT_EQ(memory_source(pool, policy, plugins), pool);
}

TEST(MemorySourceOrderTest, DriverAppliesIfEntriesDiffer) {
  constexpr auto open = MemorySource::automatic, driver = MemorySource::driver,
                 pool = MemorySource::pool;
  Policy policy;
  policy.for_all.memory = driver;
  policy.by_id["a.x"].memory = pool;
  EXPECT_EQ(memory_source(open, policy, {"a.silent", "a.x"}), pool)
      << "the entry of one plug-in applies to the whole library";
  policy.by_id["a.y"].memory = driver;
  EXPECT_EQ(memory_source(open, policy, {"a.x", "a.y"}), driver);
  EXPECT_EQ(memory_source(open, policy, {"a.y", "a.x"}), driver);
  EXPECT_EQ(memory_source(open, policy, {"a.x"}), pool) << "the other entry is of another library";
  policy.for_all.memory = pool;
  policy.by_id["a.x"].memory = open;
  EXPECT_EQ(memory_source(open, policy, {"a.x"}), pool) << "an entry that leaves it open";
}

TEST(MemorySourceOrderTest, DescriptorComesAfterHostAndIdAndBeforeAll) {
  constexpr auto open = MemorySource::automatic, driver = MemorySource::driver,
                 pool = MemorySource::pool;
  const Ids plugins{"a.x", "a.y"}, sharing{"a.y"};
  Policy policy;
  EXPECT_EQ(memory_source(open, policy, plugins, sharing), driver);
  policy.for_all.memory = pool;
  EXPECT_EQ(memory_source(open, policy, plugins), pool) << "the control";
  EXPECT_EQ(memory_source(open, policy, plugins, sharing), driver);
  policy.by_id["a.x"].memory = pool;
  EXPECT_EQ(memory_source(open, policy, plugins, sharing), driver) << "the entry is of another";
  policy.by_id["a.y"].memory = pool;
  EXPECT_EQ(memory_source(open, policy, plugins, sharing), pool);
  policy.by_id.erase("a.y");
  EXPECT_EQ(memory_source(pool, policy, plugins, sharing), pool);
}

TEST(PinnedAheadOrderTest, HostThenIdThenAllAndTheLargestOfALibrary) {
  Policy policy;
  EXPECT_EQ(pinned_ahead(0, policy, {"a.x"}), 0U);
  policy.for_all.pinned_ahead = 100;
  EXPECT_EQ(pinned_ahead(0, policy, {"a.x"}), 100U);
  policy.by_id["a.x"].pinned_ahead = 0;
  EXPECT_EQ(pinned_ahead(0, policy, {"a.x"}), 0U) << "said, not silent";
  policy.by_id["a.y"].pinned_ahead = 50;
  EXPECT_EQ(pinned_ahead(0, policy, {"a.x", "a.y"}), 50U);
  EXPECT_EQ(pinned_ahead(7, policy, {"a.x", "a.y"}), 7U);
}

TEST(InstanceSettingsTest, LimitsAreTheHostsThenThePoliciesThenTheDefaults) {
  Policy policy;
  TenantOptions options;
  for (const LimitRow& row : limit_rows()) {
    SCOPED_TRACE(row.name);
    const auto limit = [&] { return driver_limit(row, options, policy, {"a.x", "a.y"}); };
    EXPECT_EQ(limit(), row.preset);
    if (row.member == nullptr) {
      policy.for_all.driver_memory_budget = 3;
      EXPECT_EQ(limit(), 3U) << "the same table has the budget of device memory";
      continue;
    }
    EXPECT_GT(row.preset, 0U);
    policy.by_id["a.x"].driver_limits.*row.member = 0;
    EXPECT_EQ(limit(), row.preset) << "of the other plug-in";
    policy.for_all.driver_limits.*row.member = 100;
    EXPECT_EQ(limit(), 100U);
    policy.by_id["a.x"].driver_limits.*row.member = 50;
    EXPECT_EQ(limit(), 50U);
    policy.by_id["a.x"].driver_limits.*row.member = 0;
    policy.by_id["a.y"].driver_limits.*row.member = 0;
    EXPECT_EQ(limit(), 0U) << "no limit";
    options.driver_limits.*row.member = 7;
    EXPECT_EQ(limit(), 7U);
    options.driver_limits.*row.member = 0;
    EXPECT_EQ(limit(), 0U);
  }
}

TEST(InstanceSettingsTest, OneStrictPluginIsEnoughToRefuseTheLibrarysCallsInRealTime) {
  Policy policy;
  const auto refuses = [&] { return refuses_in_realtime(policy, {"a.x", "a.y"}); };
  EXPECT_FALSE(refuses());
  policy.by_id["a.y"].realtime = RealtimePolicy::refuse;
  EXPECT_TRUE(refuses());
  policy.by_id["a.y"].realtime = RealtimePolicy::count;
  policy.for_all.realtime = RealtimePolicy::refuse;
  EXPECT_TRUE(refuses()) << "a.x";
  policy.by_id["a.x"].realtime = RealtimePolicy::count;
  EXPECT_FALSE(refuses());
}

TEST(MostFreeTest, MemoryThenFewerLeasesThenTheLowerNumber) {
  EXPECT_EQ(most_free({{0, 10, 0}, {1, 30, 5}, {2, 20, 0}}), 1);
  EXPECT_EQ(most_free({{0, 30, 2}, {1, 30, 1}, {2, 30, 1}}), 1);
  EXPECT_EQ(most_free({{3, 0, 0}}), 3);
}

}  // namespace
}  // namespace ctxbroker::detail
