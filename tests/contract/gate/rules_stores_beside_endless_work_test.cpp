// SPDX-License-Identifier: Apache-2.0
// Memory that a tenant's code takes and frees beside endless work: a neighbour's, or its own. Only
// memory of the tenant's own stores comes and goes without waiting for a neighbour.
#include <gmock/gmock.h>

#include <chrono>
#include <set>
#include <string>
#include <tuple>

#include "ctxbroker/broker.hpp"
#include "store_support.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

constexpr std::size_t endless_mib = std::size_t{1} << 20;

struct TakenMemory {
  const char* name;
  const char* what;  // PutOffMetrics::what
  CUdeviceptr (*take)(std::size_t bytes);
  CUresult (*give)(CUdeviceptr address);
};

constexpr TakenMemory taken_on_device{
    "device", "device memory",
    [](std::size_t bytes) {
      CUdeviceptr address = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, bytes), CUDA_SUCCESS);
      return address;
    },
    [](CUdeviceptr address) { return driver_call("cuMemFree_v2", address); }};
constexpr TakenMemory taken_pinned{
    "pinned", "pinned host memory",
    [](std::size_t bytes) {
      void* address = nullptr;
      EXPECT_EQ(driver_call("cuMemHostAlloc", &address, bytes, 0U), CUDA_SUCCESS);
      return reinterpret_cast<CUdeviceptr>(address);
    },
    [](CUdeviceptr address) {
      return driver_call("cuMemFreeHost", reinterpret_cast<void*>(address));
    }};

using EndlessCell = std::tuple<const TakenMemory*, MemorySource, bool>;

class StoresBesideEndlessWork : public ::testing::TestWithParam<EndlessCell> {
 protected:
  StoresBesideEndlessWork() : broker(Broker::open(options())) {}
  void SetUp() override {
    const DeviceInfo& device = broker.devices().front();
    if (!(is_pinned() ? device.pinned_pools : device.memory_pools)) {
      GTEST_SKIP() << "the driver has no pools for such memory";
    }
  }
  static BrokerOptions options() {
    BrokerOptions impatient;
    impatient.end_timeout = timeout;
    return impatient;
  }
  Tenant open(const char* name) {
    TenantOptions options{LeaseChoice(LeaseKind::green)};
    options.memory = std::get<1>(GetParam());
    return broker.open_tenant(name, options);
  }
  static const TakenMemory& memory() { return *std::get<0>(GetParam()); }
  static bool is_pinned() { return &memory() == &taken_pinned; }
  static bool is_stored() { return std::get<1>(GetParam()) == MemorySource::pool; }
  static bool is_own() { return std::get<2>(GetParam()); }  // the endless work is the tenant's own
  PutOffMemory waiting() const { return put_off(broker, memory().what); }
  std::uint64_t held_bytes(const std::string& tenant) {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == tenant) return one.held_bytes;
    }
    return 0;
  }
  static constexpr milliseconds timeout{300};

  Broker broker;
  HungKernel hung;
};

TEST_P(StoresBesideEndlessWork, DISABLED_TakesAndFrees) {
  hung.let_go_after(std::chrono::seconds(is_stored() ? 20 : 5));
  Tenant guilty = open("guilty"), innocent = open("innocent");
  Tenant& tenant = is_own() ? guilty : innocent;
  CUdeviceptr used = 0;
  tenant.run(0, [&] {
    used = memory().take(endless_mib);
    EXPECT_EQ(memory().give(memory().take(endless_mib)), CUDA_SUCCESS);
  });
  guilty.run(0, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const CUfunction kernel = hung.load();
    hung.launch(kernel, stream, hung.open());
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    hung.launch(kernel, stream, hung.held());
  });
  constexpr std::uint64_t rounds = 20;
  std::set<CUdeviceptr> addresses;
  const std::size_t free_before = hung.free_memory();
  const auto begin = steady_clock::now();
  tenant.run(0, [&] {
    EXPECT_EQ(memory().give(used), CUDA_SUCCESS);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const CUdeviceptr address = memory().take(endless_mib);
      if (is_own()) {
        EXPECT_NE(address, used) << "the endless kernel may use it";
      }
      addresses.insert(address);
      EXPECT_EQ(memory().give(address), CUDA_SUCCESS);
    }
  });
  const auto took = steady_clock::now() - begin;
  const PutOffMemory late = waiting();
  EXPECT_TRUE(hung.is_held() || !is_stored()) << "a call waited until the endless work was let go";
  if (!is_stored()) {
    // Some drivers allocate no memory while a free waits, and others do.
    EXPECT_TRUE(!hung.is_held() || late.count >= rounds)
        << "the control: a call waits for the neighbour, or what is held grows";
  } else if (!is_own()) {
    EXPECT_LT(took, timeout) << "the first free already waited for the neighbour";
    EXPECT_EQ(late.count, 0U);
    if (is_pinned()) {  // a pool of the driver chooses the addresses itself
      EXPECT_LE(addresses.size(), 4U) << "the same memory is used again";
    }
    EXPECT_GE(hung.free_memory() + 4 * endless_mib, free_before) << "the same memory is used again";
  } else {
    EXPECT_GE(took, timeout) << "the first free waits for the tenant's own work";
    EXPECT_LT(took, 4 * timeout) << "and the next ones do not";
    EXPECT_EQ(addresses.size(), rounds);
    EXPECT_EQ(late.count, rounds + 1);
    const std::uint64_t on_device = is_pinned() ? 0 : (rounds + 1) * endless_mib;
    EXPECT_EQ(late.bytes, on_device);
    EXPECT_EQ(held_bytes("guilty"), on_device) << "it counts in the budget";
  }
  hung.let_go();
  if (is_stored()) {
    EXPECT_TRUE(comes_true([&] {
      broker.poll();
      return waiting().count == 0 && held_bytes("guilty") == 0;
    }));
  }
  guilty.close();
  innocent.close();
}

std::string name_of_endless_cell(const ::testing::TestParamInfo<EndlessCell>& one) {
  const auto& [memory, source, is_own] = one.param;
  return std::string(memory->name) + "_" + to_string(source) +
         (is_own ? "_own_work" : "_neighbours_work");
}
INSTANTIATE_TEST_SUITE_P(Cells, StoresBesideEndlessWork,
                         Combine(Values(&taken_on_device, &taken_pinned),
                                 Values(MemorySource::pool), Values(true, false)),
                         name_of_endless_cell);
INSTANTIATE_TEST_SUITE_P(Controls, StoresBesideEndlessWork,
                         Combine(Values(&taken_on_device, &taken_pinned),
                                 Values(MemorySource::driver), Values(false)),
                         name_of_endless_cell);

class StoresBesideEndlessWorkTest : public ::testing::TestWithParam<std::string> {};
TEST_P(StoresBesideEndlessWorkTest, TakesAndFrees) {
  const std::string& cell = GetParam();
  const bool is_control = cell.find("driver") != std::string::npos;
  const ChildResult child = run_child(std::string(is_control ? "Controls" : "Cells") +
                                      "/StoresBesideEndlessWork.DISABLED_TakesAndFrees/" + cell);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output,
              ::testing::AnyOf(HasSubstr("[  PASSED  ] 1 test"), HasSubstr("[  SKIPPED ] 1 test")));
}
INSTANTIATE_TEST_SUITE_P(Cells, StoresBesideEndlessWorkTest,
                         ::testing::Values("device_pool_own_work", "device_pool_neighbours_work",
                                           "device_driver_neighbours_work", "pinned_pool_own_work",
                                           "pinned_pool_neighbours_work",
                                           "pinned_driver_neighbours_work"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace ctxbroker
