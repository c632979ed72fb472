// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned memory that the broker itself takes for a tenant. It comes from the
// tenant's stores, and a release waits for no neighbour.
#include <cuda.h>
#include <gmock/gmock.h>

#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "broker_fixture.hpp"
#include "store_support.hpp"
#include "support/child_process.hpp"
#include "support/hung_kernel.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Values;

constexpr std::uint64_t stored_mib = std::uint64_t{1} << 20;
using StoreCell = std::tuple<MemorySource, LeaseKind>;
const auto store_sources = Values(MemorySource::pool, MemorySource::driver);
const auto store_kinds = Values(LeaseKind::shared, LeaseKind::green);
const auto name_of_store_cell = [](const auto& one) {
  return std::string(to_string(std::get<0>(one.param))) + "_" + to_string(std::get<1>(one.param));
};

class BrokerStoresTest : public BrokerTest, public ::testing::WithParamInterface<StoreCell> {
 protected:
  BrokerStoresTest() : raw(broker.driver().path) {
    BrokerOptions impatient = options();
    impatient.end_timeout = patience;
    impatient.job_timeout = patience;
    impatient.policy.for_all.memory = source();
    broker = Broker::open(std::move(impatient));
  }
  void SetUp() override {
    raw.init();
    if (!has_memory_pools(raw)) GTEST_SKIP() << "the device has no memory pools";
  }
  static MemorySource source() { return std::get<0>(GetParam()); }
  static LeaseKind kind() { return std::get<1>(GetParam()); }
  static bool is_pooled() { return source() == MemorySource::pool; }
  Tenant open(const char* name, LeaseKind lease = kind()) {
    return broker.open_tenant(name, TenantOptions{LeaseChoice(lease)});
  }
  PluginInstance twin() {
    PluginInstance instance = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                            {Placement(0), LeaseChoice(kind()), 0});
    instance.activate(test_sizes);
    return instance;
  }
  bool is_of_a_pool(std::uint64_t address) const { return ctxbroker::is_of_a_pool(raw, address); }
  bool has_arenas() const { return broker.devices().front().pinned_pools; }
  std::uint64_t memory_put_off() const { return put_off(broker, "device memory").bytes; }
  std::uint64_t pinned_put_off() const { return put_off(broker, "pinned host memory").count; }
  void expect_that_nothing_is_put_off() const {
    EXPECT_TRUE(comes_true([this] { return broker.metrics().put_off.empty(); }));
  }

  static constexpr milliseconds patience{400};
  RawDriver raw;
  float pixel[4] = {0, 1, 2, 3};
};

INSTANTIATE_TEST_SUITE_P(Cells, BrokerStoresTest, Combine(store_sources, store_kinds),
                         name_of_store_cell);

TEST_P(BrokerStoresTest, TenantsMemoryComesFromItsPoolUnlessItsLeaseIsPrivate) {
  Tenant tenant = open("tenant"), alone = open("alone", LeaseKind::private_own);
  EXPECT_EQ(is_of_a_pool(tenant.allocate(stored_mib)), is_pooled());
  EXPECT_FALSE(is_of_a_pool(alone.allocate(stored_mib))) << "no neighbour waits";
}

TEST_P(BrokerStoresTest, PinnedMemoryOfPluginsAndGraphsComesFromAnArena) {
  if (!has_arenas()) GTEST_SKIP() << "the driver makes no host memory without addresses";
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device counts calls";
  controls.start_counting();
  {
    PluginInstance plugin = twin();
    Graph(broker, {&plugin}, test_sizes).process(pixel, pixel, {});
  }
  const std::uint64_t registered = controls.call_count("cuMemHostRegister_v2");
  const std::uint64_t made = controls.call_count("cuMemCreate");
  controls.stop_counting();
  EXPECT_EQ(registered == 0, is_pooled());
  EXPECT_EQ(made != 0, is_pooled());
}

TEST_P(BrokerStoresTest, MemoryCountsUntilItIsReleasedOrTheTenantCloses) {
  Tenant tenant = open("tenant");
  const std::uint64_t first = tenant.allocate(stored_mib);
  static_cast<void>(tenant.allocate(2 * stored_mib));
  EXPECT_EQ(tenant.memory_bytes(), 3 * stored_mib);
  tenant.release(first);
  EXPECT_EQ(tenant.memory_bytes(), 2 * stored_mib);
  EXPECT_THROW(tenant.release(first), Error);
  tenant.close();
  EXPECT_EQ(tenant.memory_bytes(), 0U);
  EXPECT_THAT(broker.metrics().put_off, IsEmpty());
}

TEST_P(BrokerStoresTest, MemoryOfALostLeaseIsReleasedInTheNextOne) {
  Tenant tenant = open("tenant");
  const std::uint64_t address = tenant.allocate(stored_mib);
  broker.force_loss(tenant.id(), 0, "a test");
  const std::uint64_t next = tenant.allocate(stored_mib);
  EXPECT_NO_THROW(tenant.release(address));
  EXPECT_NO_THROW(tenant.release(next));
  EXPECT_EQ(tenant.memory_bytes(), 0U);
}

TEST_P(BrokerStoresTest, GraphOfPluginsWithMemoryOfTheirOwnWorks) {
  PluginInstance scratch = active("scratch", kind()), next = twin();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NO_THROW(Graph(broker, {&scratch, &next}, test_sizes).process(pixel, pixel, {}));
    scratch.deactivate();
    scratch.activate(test_sizes);
  }
  EXPECT_THAT(broker.metrics().put_off, IsEmpty());
}

// ---- Beside endless work: in a child process, because its memory stays until the exit ----

class BrokerStoresChildTest : public BrokerStoresTest {
 protected:
  void SetUp() override {
    BrokerStoresTest::SetUp();
    if (IsSkipped()) return;
    hung.emplace([this](const char* symbol) { return raw.find(symbol); });
    hung->let_go_after(std::chrono::seconds(is_pooled() ? 20 : 5));
  }
  void TearDown() override {
    if (hung) hung->let_go();
  }
  void begin_endless_work(Tenant& guilty) const {
    const CUstream stream = guilty.create_stream();
    guilty.run(0, [&] {
      const CUfunction kernel = hung->load();
      hung->launch(kernel, stream, hung->open());
      ASSERT_EQ(raw.call("cuStreamSynchronize", stream), CUDA_SUCCESS);
      hung->launch(kernel, stream, hung->held());
    });
  }
  // The damage of the driver's memory is that a call waits until the endless work is let go, or
  // that memory is put off. Some drivers allocate no memory while a free waits, and others do.
  bool has_waited() const {
    EXPECT_TRUE(hung->is_held() || !is_pooled()) << "a call waited for the endless work";
    return !hung->is_held();
  }
  std::optional<HungKernel> hung;
};

TEST_P(BrokerStoresChildTest, DISABLED_ReleaseWaitsForNoNeighbour) {
  constexpr std::uint64_t rounds = 20;
  Tenant guilty = open("guilty"), innocent = open("innocent");
  const std::uint64_t used = innocent.allocate(stored_mib);
  begin_endless_work(guilty);
  const auto begin = steady_clock::now();
  for (std::uint64_t i = 0; i < rounds; ++i) innocent.release(innocent.allocate(stored_mib));
  innocent.release(used);
  const auto took = steady_clock::now() - begin;
  const std::uint64_t late = memory_put_off(), counted = innocent.memory_bytes();
  const bool waited = has_waited();
  if (is_pooled()) {
    EXPECT_LT(took, patience) << "the first release already waited for the neighbour";
    EXPECT_EQ(late, 0U);
    EXPECT_EQ(counted, 0U);
  } else if (!waited) {
    EXPECT_EQ(late, (rounds + 1) * stored_mib) << "the control: what is held grows";
    EXPECT_EQ(counted, (rounds + 1) * stored_mib);
  }
  hung->let_go();
  expect_that_nothing_is_put_off();
}

TEST_P(BrokerStoresChildTest, DISABLED_MemoryIsNotUsedAgainBeforeTheTenantsOwnWorkHasEnded) {
  Tenant tenant = open("tenant");
  const std::uint64_t used = tenant.allocate(stored_mib);
  begin_endless_work(tenant);
  tenant.release(used);
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t next = tenant.allocate(stored_mib);
    EXPECT_TRUE(next != used || !hung->is_held());
  }
  const std::uint64_t late = memory_put_off();
  if (!has_waited()) {
    EXPECT_EQ(late, is_pooled() ? 0 : stored_mib);
  }
  hung->let_go();
  expect_that_nothing_is_put_off();
}

// The modules of both wait for the neighbour. Their memory does not.
TEST_P(BrokerStoresChildTest, DISABLED_MemoryOfPluginsAndGraphsWaitsForNoNeighbour) {
  Tenant guilty = open("guilty");
  PluginInstance scratch = active("scratch", kind());
  {
    Graph graph(broker, {&scratch}, test_sizes);
    graph.process(pixel, pixel, {});
    begin_endless_work(guilty);
  }
  const std::uint64_t of_graph = memory_put_off(), pinned_of_graph = pinned_put_off();
  scratch.deactivate();
  const std::uint64_t of_both = memory_put_off(), pinned_of_both = pinned_put_off();
  const bool waited = has_waited();
  if (is_pooled()) {
    EXPECT_EQ(of_both, 0U);
    EXPECT_TRUE(pinned_of_both == 0 || !has_arenas());
  } else if (!waited) {
    EXPECT_GT(of_graph, 0U) << "a control";
    EXPECT_GT(of_both, of_graph) << "a control";
    EXPECT_GT(pinned_of_graph, 0U) << "a control";
    EXPECT_GT(pinned_of_both, pinned_of_graph) << "a control";
  }
  hung->let_go();
  expect_that_nothing_is_put_off();
}

// The buffers belong to the first plug-in, and its own work has ended.
TEST_P(BrokerStoresChildTest, DISABLED_BuffersOfAGraphWaitForTheHungWorkOfAllItsNodes) {
  PluginInstance first = twin(), lingering = active("lingers", kind());
  {
    Graph graph(broker, {&first, &lingering}, test_sizes);
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { graph.process(pixel, pixel, {}); }),
                HasSubstr("lingers"));
  }
  EXPECT_GE(memory_put_off(), 64U * 64 * 16);
  expect_that_nothing_is_put_off();
}

INSTANTIATE_TEST_SUITE_P(Cells, BrokerStoresChildTest, Combine(store_sources, store_kinds),
                         name_of_store_cell);

using StoreChild = std::tuple<const char*, const char*>;
class BrokerStoresBesideEndlessWorkTest : public ::testing::TestWithParam<StoreChild> {};
TEST_P(BrokerStoresBesideEndlessWorkTest, ChildTestPasses) {
  const auto& [test, cell] = GetParam();
  const ChildResult child =
      run_child(std::string("Cells/BrokerStoresChildTest.DISABLED_") + test + "/" + cell,
                {{"LSAN_OPTIONS", "detect_leaks=0"}, {"CTXB_TEST_LINGERS_NS", "4000000000"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}
INSTANTIATE_TEST_SUITE_P(Cells, BrokerStoresBesideEndlessWorkTest,
                         Combine(Values("ReleaseWaitsForNoNeighbour",
                                        "MemoryIsNotUsedAgainBeforeTheTenantsOwnWorkHasEnded",
                                        "MemoryOfPluginsAndGraphsWaitsForNoNeighbour",
                                        "BuffersOfAGraphWaitForTheHungWorkOfAllItsNodes"),
                                 Values("pool_shared", "driver_shared", "pool_green",
                                        "driver_green")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" +
                                  std::get<1>(one.param);
                         });

}  // namespace
}  // namespace ctxbroker
