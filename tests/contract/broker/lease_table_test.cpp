// SPDX-License-Identifier: Apache-2.0
// The table of leases, Broker::leases: a row per tenant and device, while the lease is in force.
#include <gmock/gmock.h>

#include <vector>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::IsEmpty;

void expect_same(const LeaseInfo& row, const LeaseInfo& lease) {
  EXPECT_EQ(row.tenant, lease.tenant);
  EXPECT_EQ(row.tenant_name, lease.tenant_name);
  EXPECT_EQ(row.device, lease.device);
  EXPECT_EQ(row.asked, lease.asked);
  EXPECT_EQ(row.granted, lease.granted);
  EXPECT_EQ(row.reason, lease.reason);
  EXPECT_EQ(row.generation, lease.generation);
  EXPECT_EQ(row.state, lease.state);
  EXPECT_EQ(row.context, lease.context);
}

class LeaseTableTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  // Returns the lease kind that is granted if the test's kind is requested. Not every driver has
  // green contexts.
  LeaseKind granted() {
    return broker.open_tenant("probe", {LeaseChoice(GetParam())}).lease().granted.kind;
  }
};

TEST_P(LeaseTableTest, PluginsOfALibraryShareOneRow) {
  EXPECT_THAT(broker.leases(), IsEmpty());
  const LeaseKind kind = granted();
  EXPECT_THAT(broker.leases(), IsEmpty()) << "that tenant has ended";
  const PluginInstance first = create("affine", GetParam());
  const PluginInstance second = create("bias", LeaseKind::automatic);
  const PluginInstance third = create("affine", LeaseKind::private_own);
  const std::vector<LeaseInfo> rows = broker.leases();
  ASSERT_EQ(rows.size(), 1U);
  expect_same(rows[0], first.lease());
  EXPECT_EQ(rows[0].tenant_name, "behaviours");
  EXPECT_EQ(rows[0].asked, LeaseChoice(GetParam())) << "by the first, whose lease it is";
  EXPECT_EQ(rows[0].granted.kind, kind);
  EXPECT_GT(rows[0].granted.multiprocessors, 0U);
  for (const PluginInstance* later : {&second, &third}) {
    EXPECT_EQ(later->lease().generation, rows[0].generation);
    EXPECT_EQ(later->lease().context, rows[0].context);
  }
}

TEST_P(LeaseTableTest, EachTenantHasARowAndTheHostsIsFirst) {
  Tenant tenant = broker.open_tenant("effect", {LeaseChoice(GetParam())});
  const LeaseInfo of_tenant = tenant.lease();
  const PluginInstance instance = create("affine", GetParam());
  Tenant host = broker.host();
  const LeaseInfo of_host = host.lease();
  const std::vector<LeaseInfo> rows = broker.leases();
  ASSERT_EQ(rows.size(), 3U);
  expect_same(rows[0], of_host);
  EXPECT_EQ(rows[0].tenant, host_tenant);
  expect_same(rows[1], of_tenant);
  expect_same(rows[2], instance.lease());
}

TEST_P(LeaseTableTest, ALossEndsARowsGenerationAndTheNextUseBeginsAnother) {
  Tenant tenant = broker.open_tenant("effect", {LeaseChoice(GetParam())});
  Tenant beside = broker.open_tenant("beside", {LeaseChoice(GetParam())});
  const std::uint64_t first = tenant.lease().generation, other = beside.lease().generation;
  ASSERT_TRUE(broker.force_loss(tenant.id(), 0, "a test"));
  std::vector<LeaseInfo> rows = broker.leases();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].generation, first);
  EXPECT_EQ(rows[0].state, LeaseState::lost);
  EXPECT_EQ(rows[1].state, LeaseState::ready);
  { const Guard next(tenant); }
  rows = broker.leases();
  ASSERT_EQ(rows.size(), 2U) << "the former life is in no table";
  EXPECT_GT(rows[0].generation, first);
  EXPECT_EQ(rows[0].state, LeaseState::ready);
  EXPECT_EQ(rows[0].tenant, tenant.id());
  EXPECT_EQ(rows[1].generation, other);
}

TEST_P(LeaseTableTest, EndedTenantsLeaveTheTable) {
  Tenant tenant = broker.open_tenant("effect", {LeaseChoice(GetParam())});
  tenant.lease();
  {
    const PluginInstance first = create("affine", GetParam());
    {
      const PluginInstance second = create("bias", GetParam());
      EXPECT_EQ(broker.leases().size(), 2U);
    }
    EXPECT_EQ(broker.leases().size(), 2U) << "the first still has it";
  }
  EXPECT_EQ(broker.leases().size(), 1U) << "though the library is still loaded";
  ASSERT_TRUE(broker.force_loss(tenant.id(), 0, "a test"));
  tenant.close();
  EXPECT_THAT(broker.leases(), IsEmpty());
}

// Both count for the tenant as a whole, whichever of its users they are of.
TEST_P(LeaseTableTest, MemoryAndStrikesAreCountedForTheTenant) {
  const RawDriver driver(broker.driver().path);
  Tenant tenant = broker.open_tenant("effect", {LeaseChoice(GetParam())});
  Tenant beside = broker.open_tenant("beside", {LeaseChoice(GetParam())});
  static_cast<void>(tenant.allocate(4096));
  static_cast<void>(tenant.allocate(8192));
  const std::uint64_t freed = beside.allocate(1024);
  for (int times = 0; times < 2; ++times) {
    tenant.run(0, [&] { driver.push(tenant.lease().context); });
  }
  beside.release(freed);
  const std::vector<TenantMetrics> metrics = broker.metrics().tenants;
  ASSERT_EQ(metrics.size(), 3U) << "the host, too";
  EXPECT_EQ(metrics[1].strikes, 2U);
  EXPECT_EQ(metrics[2].strikes, 0U);
  ASSERT_EQ(metrics[1].leases.size(), 1U);
  EXPECT_EQ(metrics[1].leases[0].memory_bytes, 12288U);
  EXPECT_EQ(metrics[1].leases[0].generation, broker.leases()[0].generation);
  ASSERT_EQ(metrics[2].leases.size(), 1U);
  EXPECT_EQ(metrics[2].leases[0].memory_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LeaseTableTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace ctxbroker
