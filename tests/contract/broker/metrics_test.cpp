// SPDX-License-Identifier: Apache-2.0
// What the broker counts per tenant and lease.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using Json = nlohmann::json;

class MetricsTest : public BrokerTest {
 protected:
  TenantMetrics tenant(const std::string& name) {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no tenant " << name;
    return {};
  }
  LeaseMetrics lease(const std::string& name) {
    const TenantMetrics found = tenant(name);
    EXPECT_EQ(found.leases.size(), 1u);
    return found.leases.empty() ? LeaseMetrics() : found.leases[0];
  }
};

TEST_F(MetricsTest, MetricsOfANewBrokerHoldOnlyTheHost) {
  const BrokerMetrics metrics = broker.metrics();
  ASSERT_EQ(metrics.tenants.size(), 1u);
  EXPECT_EQ(metrics.tenants[0].id, host_tenant);
  EXPECT_EQ(metrics.tenants[0].name, "host");
  EXPECT_THAT(metrics.tenants[0].instances, testing::IsEmpty());
}

TEST_F(MetricsTest, ALeaseCountsTheWorkOfAllItsInstances) {
  PluginInstance first = active("affine");
  {
    PluginInstance second = active("scratch");
    for (int job = 0; job < 3; ++job) run({&first, &second});
    const TenantMetrics now = tenant("behaviours");
    ASSERT_EQ(now.instances.size(), 2u);
    const Metrics one = first.metrics(), other = second.metrics();
    const LeaseMetrics both = lease("behaviours");
    EXPECT_EQ(both.jobs, 6u);
    EXPECT_EQ(both.launches, one.launches + other.launches);
    EXPECT_NEAR(both.device_seconds, one.device_seconds + other.device_seconds, 1e-9);
    EXPECT_GT(both.device_seconds, 0);
    EXPECT_EQ(both.generation, first.lease().generation);
    EXPECT_EQ(both.granted, first.lease().granted);
    EXPECT_GT(both.guards_entered, 6u);
  }
  run({&first});
  EXPECT_EQ(tenant("behaviours").instances.size(), 1u);
  EXPECT_EQ(lease("behaviours").jobs, 7u);  // what has ended stays counted
}

TEST_F(MetricsTest, CreateAndActivateInARealTimeSessionAreCounted) {
  PluginInstance before = active("affine");
  EXPECT_THAT(tenant("behaviours").realtime, testing::IsEmpty());
  broker.begin_realtime();
  {
    const PluginInstance inside = active("scratch");
    broker.end_realtime();
  }
  auto calls = tenant("behaviours").realtime;
  EXPECT_EQ(calls["create"].count, 1U);
  EXPECT_EQ(calls["activate"].count, 1U);
  EXPECT_EQ(calls["deactivate"].count, 0U) << "after the session";
  EXPECT_GT(calls["activate"].seconds, 0);
  EXPECT_THAT(Json::parse(to_json(broker.metrics()))["tenants"].dump(),
              testing::HasSubstr("\"activate\":{\"count\":1"));
}

// Also those of calls that failed afterwards, and when it is another life of the lease.
TEST_F(MetricsTest, ALeaseCountsEachLaunchOnce) {
  PluginInstance fails = active("launches_and_fails"), throws = active("launches_and_throws"),
                 good = active("affine");
  EXPECT_EQ(lease("behaviours").launches, 2u) << "in activate";
  EXPECT_THROW(run({&fails}), Error);
  EXPECT_EQ(lease("behaviours").launches, 3u);
  EXPECT_THROW(run({&throws}), Error);
  EXPECT_EQ(lease("behaviours").launches, 4u);
  run({&good});
  EXPECT_EQ(lease("behaviours").launches, 5u);
  PluginInstance never = create("activate_launches_and_fails");
  EXPECT_THROW(never.activate(test_sizes), Error);
  EXPECT_EQ(lease("behaviours").launches, 7u);
  EXPECT_EQ(fails.metrics().launches, 3u);
  EXPECT_EQ(throws.metrics().launches, 1u);
  EXPECT_EQ(good.metrics().launches, 1u);
  EXPECT_EQ(never.metrics().launches, 2u);
  ASSERT_TRUE(broker.force_loss(good.lease().tenant, 0, "a test"));
  run({&good});
  EXPECT_EQ(good.metrics().launches, 2u);
  EXPECT_EQ(lease("behaviours").launches, 1u) << "of the new life";
}

TEST_F(MetricsTest, InstancesAtWorkAtTheSameTimeAreCountedTogether) {
  static constexpr int jobs = 50;
  PluginInstance first = active("affine"), second = active("affine");
  Graph one(broker, {&first}, test_sizes), other(broker, {&second}, test_sizes);
  const auto work = [](Graph& graph) {
    float samples[4] = {};
    for (int job = 0; job < jobs; ++job) graph.process(samples, samples, {});
  };
  std::thread worker([&] { work(other); });
  work(one);
  static_cast<void>(second.metrics().launches + lease("behaviours").launches);
  worker.join();
  EXPECT_EQ(first.metrics().launches, static_cast<std::uint64_t>(jobs));
  EXPECT_EQ(second.metrics().launches, static_cast<std::uint64_t>(jobs));
  EXPECT_EQ(lease("behaviours").launches, 2u * jobs);
}

TEST_F(MetricsTest, LeaseCountsHeldObjectsUntilTheyAreReleased) {
  PluginInstance instance = create("affine");
  const LeaseMetrics idle = lease("behaviours");
  EXPECT_EQ(idle.streams + idle.events + idle.modules + idle.allocations, 0u);
  instance.activate(test_sizes);
  const LeaseMetrics active = lease("behaviours");
  EXPECT_EQ(active.streams, 1u);
  EXPECT_EQ(active.modules, instance.description().modules.size());
  EXPECT_GE(active.allocations, 1u);
  {
    const Graph graph(broker, {&instance}, test_sizes);
    const LeaseMetrics chained = lease("behaviours");
    EXPECT_GT(chained.events, active.events);
    EXPECT_GT(chained.allocations, active.allocations);
  }
  instance.deactivate();
  const LeaseMetrics after = lease("behaviours");
  EXPECT_EQ(after.streams + after.events + after.allocations, 0u);
  EXPECT_EQ(after.modules, active.modules) << "until a poll finds the device idle";
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (lease("behaviours").modules != 0 && std::chrono::steady_clock::now() < latest) {
    broker.poll();
  }
  EXPECT_EQ(lease("behaviours").modules, 0u);
}

TEST_F(MetricsTest, ALeaseCountsItsPluginsMemory) {
  PluginInstance first = active("megabyte"), second = active("megabyte");
  const std::uint64_t each = first.metrics().memory_bytes;
  ASSERT_GT(each, 0u);
  EXPECT_EQ(lease("behaviours").memory_bytes, 2 * each);
  second.deactivate();
  EXPECT_EQ(lease("behaviours").memory_bytes, each);
  EXPECT_EQ(lease("behaviours").memory_peak_bytes, 2 * each);
  first.deactivate();
  EXPECT_EQ(lease("behaviours").memory_bytes, 0u);
  EXPECT_EQ(lease("behaviours").memory_peak_bytes, 2 * each);
}

TEST_F(MetricsTest, StrikesStayWithTheTenant) {
  {
    PluginInstance instance = active("null_stream");
    EXPECT_THROW(run({&instance}), Error);
  }
  EXPECT_EQ(tenant("behaviours").strikes, 1u);
  EXPECT_EQ(tenant("host").strikes, 0u);
}

TEST_F(MetricsTest, JsonHoldsTheSameNumbers) {
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  PluginInstance first = active("affine");
  PluginInstance second = broker.create(twin, "affine");
  second.activate(test_sizes);
  run({&first, &second});
  const BrokerMetrics metrics = broker.metrics();
  const Json json = Json::parse(to_json(metrics));
  EXPECT_EQ(json.at("schema"), "ctxbroker.metrics/1");
  ASSERT_EQ(json.at("tenants").size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const TenantMetrics& tenant = metrics.tenants[i];
    const Json& shown = json.at("tenants").at(i);
    EXPECT_EQ(shown.at("id"), tenant.id.value);
    EXPECT_EQ(shown.at("name"), tenant.name);
    EXPECT_EQ(shown.at("strikes"), tenant.strikes);
    EXPECT_EQ(shown.at("memory"), to_string(tenant.memory));
    EXPECT_EQ(shown.at("store_unused_bytes"), tenant.store_unused_bytes);
    ASSERT_EQ(shown.at("leases").size(), tenant.leases.size());
    ASSERT_EQ(shown.at("instances").size(), tenant.instances.size());
    for (std::size_t at = 0; at < tenant.leases.size(); ++at) {
      const LeaseMetrics& lease = tenant.leases[at];
      EXPECT_EQ(shown.at("leases").at(at),
                (Json{{"device", lease.device},
                      {"kind", to_string(lease.granted.kind)},
                      {"multiprocessors", lease.granted.multiprocessors},
                      {"state", "ready"},
                      {"generation", lease.generation},
                      {"guards_entered", lease.guards_entered},
                      {"jobs", 1},
                      {"launches", lease.launches},
                      {"device_seconds", lease.device_seconds},
                      {"memory_bytes", lease.memory_bytes},
                      {"memory_peak_bytes", lease.memory_peak_bytes},
                      {"streams", lease.streams},
                      {"events", lease.events},
                      {"modules", lease.modules},
                      {"allocations", lease.allocations},
                      {"graphs", lease.graphs},
                      {"module_bytes", lease.module_bytes},
                      {"module_loads", 1},
                      {"module_reloads", 0},
                      {"module_unloads", 0},
                      {"module_load_seconds", lease.module_load_seconds}}));
    }
    for (const Json& instance : shown.at("instances")) {
      EXPECT_EQ(instance.at("jobs"), 1);
      EXPECT_THAT(instance.at("plugin").get<std::string>(), testing::HasSubstr("affine"));
    }
  }
  TenantMetrics odd;
  odd.name = "\"\xff\n";
  odd.memory = MemorySource::pool;
  odd.store_unused_bytes = 4096;
  const Json shown = Json::parse(to_json(BrokerMetrics{{odd}})).at("tenants").at(0);
  EXPECT_EQ(shown.at("memory"), "pool");
  EXPECT_EQ(shown.at("store_unused_bytes"), 4096);
  EXPECT_EQ(shown.at("name"), "\"\ufffd\n");
}

}  // namespace
}  // namespace ctxbroker
