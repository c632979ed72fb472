// SPDX-License-Identifier: Apache-2.0
// What the host's policy decides, and what stands above and below it.
#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class PolicyContractTest : public BrokerTest {
 protected:
  // A second broker on the same driver, with this policy.
  Broker with(const std::string& members) {
    BrokerOptions governed = options();
    governed.policy = parse_policy(R"({"schema": "ctxbroker.policy/1", )" + members + "}", "test");
    return Broker::open(governed);
  }
};

constexpr const char* private_for_affine =
    R"("by_id": {"com.example.test.affine": {"lease": "private"}})";

TEST_F(PolicyContractTest, APolicyForAnIdDecidesForItsLibraryAndTheReasonNamesIt) {
  Broker governed = with(private_for_affine);
  const PluginLibrary library = governed.load(test_plugin("behaviours"));
  for (const char* plugin : {"affine", "bias"}) {
    const LeaseInfo lease = governed.create(library, plugin).lease();
    EXPECT_EQ(lease.asked, LeaseChoice(LeaseKind::private_own));
    EXPECT_EQ(lease.granted.kind, LeaseKind::private_own);
    EXPECT_EQ(lease.reason, "the policy for com.example.test.affine asked for private");
  }
  EXPECT_NE(create("affine").lease().granted.kind, LeaseKind::private_own) << "without a policy";
}

// A tenant has one lease per device: what is said of its plug-ins is weighed, whichever comes
// first.
TEST_F(PolicyContractTest, TenantGetsTheStrongestLeaseOfItsPluginsPolicies) {
  const struct {
    const char *affine, *bias, *why;
    LeaseKind granted;
  } rows[] = {
      {"shared", "private", "bias asked for private", LeaseKind::private_own},
      {"private", "green", "affine asked for private", LeaseKind::private_own},
      {"shared", "green", "bias asked for green", LeaseKind::green},
  };
  const bool has_green =
      broker.open_tenant("probe", {LeaseChoice(LeaseKind::green)}).lease().granted.kind ==
      LeaseKind::green;
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.affine) + ", " + row.bias);
    if (row.granted == LeaseKind::green && !has_green) continue;
    Broker governed =
        with(R"("by_id": {"com.example.test.affine": {"lease": ")" + std::string(row.affine) +
             R"("}, "com.example.test.bias": {"lease": ")" + row.bias + "\"}}");
    const PluginLibrary library = governed.load(test_plugin("behaviours"));
    for (const char* first : {"affine", "bias"}) {
      const PluginInstance one = governed.create(library, first);
      const PluginInstance third = governed.create(library, "scratch");
      const std::vector<LeaseInfo> table = governed.leases();
      ASSERT_EQ(table.size(), 1U);
      for (const LeaseInfo& info : {table[0], one.lease(), third.lease()}) {
        EXPECT_EQ(info.asked.kind, row.granted);
        EXPECT_EQ(info.granted.kind, row.granted);
        EXPECT_EQ(info.reason, std::string("the policy for com.example.test.") + row.why);
        EXPECT_EQ(info.generation, table[0].generation);
      }
    }
  }
}

TEST_F(PolicyContractTest, HostsOptionsOutrankThePolicy) {
  Broker governed = with(private_for_affine);
  InstanceOptions options;
  options.lease = LeaseChoice(LeaseKind::shared);
  const LeaseInfo lease =
      governed.create(governed.load(test_plugin("behaviours")), "affine", options).lease();
  EXPECT_EQ(lease.granted.kind, LeaseKind::shared);
  EXPECT_EQ(lease.reason, "the host asked for shared");
}

TEST_F(PolicyContractTest, PolicyOutranksThePluginsWishes) {
  // Without a policy this library gets private, because one of its plug-ins wishes it.
  Broker governed = with(R"("for_all": {"lease": "shared"})");
  const LeaseInfo lease = governed.create(governed.load(test_plugin("wishes")), "affine").lease();
  EXPECT_EQ(lease.granted.kind, LeaseKind::shared);
  EXPECT_EQ(lease.reason, "the policy for all plug-ins asked for shared");
  Broker open = with(R"("for_all": {"lease": "auto"})");
  EXPECT_EQ(open.create(open.load(test_plugin("wishes")), "affine").lease().granted.kind,
            LeaseKind::private_own);
}

TEST_F(PolicyContractTest, ATenantOfTheHostsIsKnownByItsNameAndTheHostIsNot) {
  Broker governed = with(
      R"("for_all": {"lease": "private"}, "by_id": {"org.example.effect": {"lease": "shared"}})");
  EXPECT_EQ(governed.open_tenant("org.example.effect").lease().granted.kind, LeaseKind::shared);
  EXPECT_EQ(governed.open_tenant("other").lease().granted.kind, LeaseKind::private_own);
  EXPECT_NE(governed.host().lease().granted.kind, LeaseKind::private_own);
}

MemorySource memory_of(const Broker& broker, const std::string& tenant) {
  for (const TenantMetrics& one : broker.metrics().tenants) {
    if (one.name == tenant) return one.memory;
  }
  ADD_FAILURE() << "no tenant " << tenant;
  return MemorySource::automatic;
}

TEST_F(PolicyContractTest, HostsChoiceOfMemoryOutranksThePolicyAndTheMetricsShowIt) {
  Broker governed =
      with(R"("for_all": {"memory": "pool"}, "by_id": {"named": {"memory": "driver"}})");
  const Tenant all = governed.open_tenant("all"), named = governed.open_tenant("named");
  EXPECT_EQ(memory_of(governed, "all"), MemorySource::pool);
  EXPECT_EQ(memory_of(governed, "named"), MemorySource::driver);
  TenantOptions chosen;
  chosen.memory = MemorySource::driver;
  const Tenant by_host = governed.open_tenant("by_host", chosen);
  EXPECT_EQ(memory_of(governed, "by_host"), MemorySource::driver);
  chosen.memory = MemorySource::pool;
  Tenant again = governed.open_tenant("again", chosen);
  EXPECT_EQ(memory_of(governed, "again"), MemorySource::pool);
  again.close();
  const Tenant silent = broker.open_tenant("silent");
  EXPECT_NE(memory_of(broker, "silent"), MemorySource::automatic) << "without a policy";
}

TEST_F(PolicyContractTest, PolicyOfMemoryDoesNotApplyToTheHost) {
  BrokerOptions governed = options();
  governed.policy.for_all.memory = MemorySource::driver;
  Broker open = Broker::open(governed);
  EXPECT_EQ(memory_of(open, "host"), MemorySource::pool) << "also before anybody asks for the host";
  const Tenant host = open.host();
  EXPECT_EQ(memory_of(open, "host"), MemorySource::pool);
  governed.host.memory = MemorySource::driver;
  Broker chosen = Broker::open(governed);
  const Tenant own = chosen.host();
  EXPECT_EQ(memory_of(chosen, "host"), MemorySource::driver);
}

TEST_F(PolicyContractTest, LibraryHasTheDriversMemoryIfOneOfItsPluginsNeedsIt) {
  Broker governed = with(R"("by_id": {"com.example.test.affine": {"memory": "pool"},
                                      "com.example.test.bias": {"memory": "driver"}})");
  const PluginLibrary mixed = governed.load(test_plugin("behaviours"));
  EXPECT_EQ(memory_of(governed, "behaviours"), MemorySource::driver);
  Broker pools = with(R"("by_id": {"com.example.test.affine": {"memory": "pool"}})");
  const PluginLibrary whole = pools.load(test_plugin("behaviours"));
  EXPECT_EQ(memory_of(pools, "behaviours"), MemorySource::pool);
}

TEST_F(PolicyContractTest, LibraryHasTheDriversMemoryIfADescriptorSaysSo) {
  Broker governed = with(R"("for_all": {"memory": "pool"})");
  const PluginLibrary sharing = governed.load(test_plugin("linking"));
  EXPECT_EQ(memory_of(governed, "linking"), MemorySource::driver);
  const PluginLibrary control = governed.load(test_plugin("behaviours"));
  EXPECT_EQ(memory_of(governed, "behaviours"), MemorySource::pool);
  Broker named = with(R"("by_id": {"com.example.test.linking": {"memory": "pool"}})");
  const PluginLibrary chosen = named.load(test_plugin("linking"));
  EXPECT_EQ(memory_of(named, "linking"), MemorySource::pool);
}

TEST_F(PolicyContractTest, MemoryBudgetsHoldUnlessTheHostGivesAnother) {
  Broker governed = with(R"("for_all": {"memory_budget": 1048575}, "by_id": {"never.loaded": {}})");
  const PluginLibrary library = governed.load(test_plugin("behaviours"));
  PluginInstance bounded = governed.create(library, "megabyte");
  EXPECT_THAT(error_text(ErrorKind::out_of_memory, [&] { bounded.activate(test_sizes); }),
              HasSubstr("1048576 bytes do not fit into the budget of 1048575"));
  InstanceOptions options;
  options.memory_budget = 0;
  PluginInstance unbounded = governed.create(library, "megabyte", options);
  unbounded.activate(test_sizes);
  EXPECT_EQ(unbounded.metrics().memory_bytes, 1048576U);
}

TEST_F(PolicyContractTest, ADeviceThatIsNotThereIsAnErrorOfTheInstance) {
  Broker governed = with(R"("for_all": {"placement": 1000})");
  const PluginLibrary library = governed.load(test_plugin("behaviours"));
  EXPECT_THAT(error_text(ErrorKind::no_device, [&] { return governed.create(library, "affine"); }),
              HasSubstr("there is no device 1000"));
  InstanceOptions options;
  options.device = Placement(0);
  EXPECT_EQ(governed.create(library, "affine", options).lease().device, 0);
}

TEST_F(PolicyContractTest, ShieldIsReportedPerDevice) {
  Broker fresh = Broker::open(options());
  fresh.use_device(0);
  const ShieldInfo shield = fresh.shield(0);
  EXPECT_TRUE(shield.in_use);
  const bool green = create("affine", LeaseKind::green).lease().granted.kind == LeaseKind::green;
  EXPECT_EQ(shield.up, green) << shield.reason;
  EXPECT_EQ(shield.reason.empty(), green);
  EXPECT_THAT(error_text(ErrorKind::no_device, [&] { return fresh.shield(1000); }),
              HasSubstr("there is no device 1000"));
  EXPECT_THAT(error_text(ErrorKind::no_device, [&] { fresh.use_device(-1); }),
              HasSubstr("there is no device -1"));
  Broker described = Broker::open_without_driver();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { return described.shield(0); }),
              HasSubstr("without a driver"));
}

}  // namespace
}  // namespace ctxbroker
