// What the gate makes true for each tenant alone, and what it books for it. Calls inside a tenant's
// guard are its own; the driver's own functions tell what really came of them.
#include <gmock/gmock.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <vector>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "driver_by_name.hpp"
#include "software_controls.hpp"
#include "test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t mib = std::size_t{1} << 20;

class PoliciesTest : public ::testing::Test {
 protected:
  PoliciesTest() : broker(Broker::open(options())) {
    driver_ = dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  }

  BrokerOptions options() {
    BrokerOptions all;
    all.records = [this](const Record& record) {
      const std::lock_guard lock(mutex_);
      said_.push_back(std::string(record.topic) + ": " + record.text);
    };
    return all;
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  TenantMetrics metrics_of(const Tenant& tenant) {
    for (TenantMetrics& metrics : broker.metrics().tenants)
      if (metrics.id == tenant.id()) return metrics;
    return {};
  }
  HeldThings held(const Tenant& tenant, const char* kind) { return metrics_of(tenant).held[kind]; }

  // Past the gate.
  bool driver_has(const char* symbol) const { return dlsym(driver_, symbol) != nullptr; }
  template <typename... Parameters>
  CUresult raw(const char* symbol, Parameters... arguments) const {
    auto* const function = reinterpret_cast<CUresult (*)(Parameters...)>(dlsym(driver_, symbol));
    return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_FOUND;
  }
  std::size_t free_memory(Tenant& asking) const {
    std::size_t free = 0, total = 0;
    asking.run(0, [&] { raw("cuMemGetInfo_v2", &free, &total); });
    return free;
  }
  // With its context, where that is its own and the driver is one that can be told to; else the
  // context stands until its end.
  void lose_lease(Tenant& tenant) {
    const SoftwareControls controls(broker.driver().path);
    if (controls && tenant.lease().granted.kind == LeaseKind::private_own) {
      controls.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      const CUresult status = tenant.run(0, [] { return driver_call("cuCtxSynchronize"); });
      EXPECT_EQ(status, CUDA_ERROR_CONTEXT_IS_DESTROYED);
      EXPECT_EQ(tenant.note(status), LeaseState::lost);
    } else {
      broker.force_loss(tenant.id(), 0, "a test");
    }
    tenant.run(0, [] {});
  }
  static Tenant open(Broker& broker, const char* name, LeaseKind kind, std::uint64_t budget = 0) {
    TenantOptions options{kind};
    options.driver_memory_budget = budget;
    return broker.open_tenant(name, options);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;
  void* driver_ = nullptr;

 protected:
  Broker broker;
};

// ---- memory that is short --------------------------------------------------------------------

TEST_F(PoliciesTest, AFullDeviceUnloadsIdleModulesOfOthers) {
  PluginInstance idle =
      broker.create(broker.load(test_library("behaviours")), "plain", {0, LeaseKind::green});
  idle.activate({64, 64, 0, false});
  const auto modules = [&] {
    for (const TenantMetrics& metrics : broker.metrics().tenants) {
      if (metrics.name == "behaviours") return metrics.leases.at(0).modules;
    }
    return std::uint64_t{99};
  };
  Tenant tenant = open(broker, "hungry", LeaseKind::green);
  const auto allocate = [&](std::size_t bytes) {
    return tenant.run(0, [bytes] {
      CUdeviceptr address = 0;
      const CUresult status = driver_call("cuMemAlloc_v2", &address, bytes);
      if (status == CUDA_SUCCESS) driver_call("cuMemFree_v2", address);
      return status;
    });
  };
  EXPECT_EQ(allocate(mib), CUDA_SUCCESS);
  EXPECT_EQ(modules(), 1u) << "there was enough";
  EXPECT_EQ(allocate(std::size_t{1} << 46), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(modules(), 0u);
  const SoftwareControls controls(broker.driver().path);
  if (!controls) return;  // no other driver can be told that it is full
  idle.deactivate();
  idle.activate({64, 64, 0, false});
  controls.fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(mib), CUDA_SUCCESS) << "once more after the module went";
  EXPECT_EQ(modules(), 0u);
  controls.fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(mib), CUDA_ERROR_OUT_OF_MEMORY) << "nothing was left to unload";
  controls.stop_counting();
}

// ---- waiting ---------------------------------------------------------------------------------

void CUDA_CB busy(void* nanoseconds) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::nanoseconds(*static_cast<std::uint64_t*>(nanoseconds));
  while (std::chrono::steady_clock::now() < until) {
  }
}

TEST_F(PoliciesTest, WaitingIsTimedAndTheTenantsOwn) {
  const auto trace_of_one_wait = [&](Tenant& tenant) {
    const auto file = std::filesystem::temp_directory_path() /
                      ("ctxb_waits_" + std::to_string(::getpid()) + ".json");
    broker.start_timeline();
    tenant.run(0, [] { driver_call("cuStreamSynchronize", CUstream{nullptr}); });
    broker.write_timeline(file);
    std::ifstream stream(file);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::filesystem::remove(file);
    return text;
  };
  Tenant waits = open(broker, "waits", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  std::uint64_t busy_for = 50'000'000;  // ns; begins at once, before anybody waits
  waits.run(0, [&] {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr address = 0;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuEventCreate", &event, 0U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(waits).waits.count, 0U);
    ASSERT_EQ(driver_call("cuLaunchHostFunc", stream, busy, static_cast<void*>(&busy_for)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    EXPECT_GE(metrics_of(waits).waits.longest_seconds, 0.002);
    EXPECT_EQ(driver_call("cuEventRecord", event, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventSynchronize", event), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFree_v2", address), CUDA_SUCCESS);
  });
  const DriverWaits all = metrics_of(waits).waits;
  EXPECT_EQ(all.count, 4U);
  EXPECT_GE(all.seconds, all.longest_seconds);
  EXPECT_EQ(metrics_of(waits).guarded_calls.at("cuStreamSynchronize"), 1U);
  EXPECT_EQ(metrics_of(other).waits.count, 0U);
  EXPECT_THAT(to_json(broker.metrics()), HasSubstr("longest_seconds"));
  EXPECT_THAT(trace_of_one_wait(waits), HasSubstr("cuStreamSynchronize"));
  driver_call("cuCtxSynchronize");  // the host's
  EXPECT_EQ(metrics_of(waits).waits.count, 5U);
}

TEST_F(PoliciesTest, WaitingOnAnOwnThreadIsTheTenantsToo) {
  Tenant tenant = open(broker, "waits", LeaseKind::green);
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_proc_address"));
  auto* const allocate = reinterpret_cast<allocate_function*>(library.symbol(ALLOCATE));
  auto* const attack = reinterpret_cast<attack_function*>(library.symbol(ATTACK_ON_OWN_THREAD));
  AttackTarget own{};
  own.memory = tenant.run(0, [&] { return allocate(64); });
  ASSERT_NE(own.memory, 0U);
  EXPECT_EQ(attack("overwrite_memory", &own), CUDA_SUCCESS);  // it synchronises
  EXPECT_EQ(metrics_of(tenant).waits.count, 1U);
}

// ---- flags -----------------------------------------------------------------------------------

class FlagsTest : public PoliciesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (!driver_has("cuCtxSetFlags")) GTEST_SKIP() << "the driver has no cuCtxSetFlags";
  }
  unsigned schedule() const {  // of what is current, as the caller sees it
    unsigned flags = ~0U;
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
  unsigned real_schedule() const {
    unsigned flags = ~0U;
    EXPECT_EQ(raw("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
  unsigned primary_schedule() const {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(raw("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
};

TEST_P(FlagsTest, AreTheTenantsOwn) {
  const bool own_context = GetParam() == LeaseKind::private_own;
  Tenant tenant = open(broker, "flags", GetParam());
  Tenant neighbour = open(broker, "neighbour", GetParam());
  const unsigned before = neighbour.run(0, [&] { return real_schedule(); });
  const unsigned primary_before = primary_schedule();
  tenant.run(0, [&] {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxSetFlags_v2", 0, unsigned(CU_CTX_SCHED_BLOCKING_SYNC)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SCHED_YIELD)), CUDA_SUCCESS);
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_YIELD));
    EXPECT_EQ(real_schedule(), own_context ? unsigned(CU_CTX_SCHED_YIELD) : before);
    EXPECT_EQ(driver_call("cuCtxSetFlags", 3U), CUDA_ERROR_INVALID_VALUE);
    if (!own_context) {
      EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SYNC_MEMOPS)),
                CUDA_ERROR_NOT_SUPPORTED);
    }
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_YIELD));
  });
  EXPECT_EQ(neighbour.run(0, [&] { return schedule(); }), before);
  EXPECT_EQ(neighbour.run(0, [&] { return real_schedule(); }), before);
  EXPECT_EQ(primary_schedule(), primary_before);
}

// Without the gate they are the neighbour's too.
TEST_P(FlagsTest, AreTheNeighboursTooWithoutTheGate) {
  if (GetParam() == LeaseKind::private_own)
    GTEST_SKIP() << "a private context has flags of its own";
  Tenant tenant = open(broker, "flags", GetParam());
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  const unsigned before = neighbour.run(0, [&] { return real_schedule(); });
  tenant.run(0, [&] { raw("cuCtxSetFlags", unsigned(CU_CTX_SCHED_YIELD)); });
  EXPECT_EQ(neighbour.run(0, [&] { return real_schedule(); }), unsigned(CU_CTX_SCHED_YIELD));
  tenant.run(0, [&] { raw("cuCtxSetFlags", before); });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FlagsTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::green, LeaseKind::private_own),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

// ---- peer access -----------------------------------------------------------------------------

class PeersTest : public PoliciesTest {
 protected:
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
    int can = 0;
    raw("cuDeviceCanAccessPeer", &can, 0, 1);
    if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
    ASSERT_EQ(raw("cuDevicePrimaryCtxRetain", &primary, 1), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (primary != nullptr) raw("cuDevicePrimaryCtxRelease_v2", 1);
  }
  CUresult enable(Tenant& tenant) {
    return tenant.run(0, [&] { return driver_call("cuCtxEnablePeerAccess", primary, 0U); });
  }
  CUresult disable(Tenant& tenant) {
    return tenant.run(0, [&] { return driver_call("cuCtxDisablePeerAccess", primary); });
  }
  // Asked of the driver, and left as it was.
  bool really_enabled(Tenant& in) {
    return in.run(0, [&] {
      const CUresult status = raw("cuCtxEnablePeerAccess", primary, 0U);
      if (status == CUDA_SUCCESS) raw("cuCtxDisablePeerAccess", primary);
      return status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
  }
  CUcontext primary = nullptr;  // of device 1
};

TEST_F(PeersTest, AccessIsEachTenantsOwn) {
  Tenant first = open(broker, "first", LeaseKind::shared);
  Tenant second = open(broker, "second", LeaseKind::shared);
  EXPECT_EQ(disable(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_FALSE(really_enabled(first));
  EXPECT_EQ(enable(first), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(first));
  EXPECT_EQ(enable(first), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(disable(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(enable(second), CUDA_SUCCESS);
  EXPECT_EQ(held(second, "peer access").count, 1U);
  EXPECT_EQ(disable(first), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(second)) << "the other one has it still";
  EXPECT_EQ(enable(first), CUDA_SUCCESS);
  second.close();
  EXPECT_TRUE(really_enabled(first));
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x peer access")));
  EXPECT_EQ(disable(first), CUDA_SUCCESS);
  EXPECT_FALSE(really_enabled(first)) << "the last one has given it back";
}

TEST_F(PeersTest, TheHostsAndTheTenantsDoNotTakeItFromEachOther) {
  Tenant tenant = open(broker, "tenant", LeaseKind::shared);
  CUcontext here = nullptr;
  ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &here, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuCtxPushCurrent_v2", here), CUDA_SUCCESS);
  EXPECT_EQ(enable(tenant), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(driver_call("cuCtxEnablePeerAccess", primary, 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(tenant));
  tenant.close();
  EXPECT_EQ(driver_call("cuCtxEnablePeerAccess", primary, 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_SUCCESS);
  driver_call("cuCtxPopCurrent_v2", &here);
  driver_call("cuDevicePrimaryCtxRelease_v2", 0);
}

TEST_F(PeersTest, ByTheBrokersOwnCallItIsTheTenantsToo) {
  Tenant first = open(broker, "first", LeaseKind::shared);
  Tenant second = open(broker, "second", LeaseKind::shared);
  first.enable_peer_access(0, 1);
  first.enable_peer_access(0, 1);  // twice is no error
  EXPECT_EQ(enable(second), CUDA_SUCCESS);
  EXPECT_EQ(disable(second), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(first));
  first.close();
  EXPECT_FALSE(really_enabled(second));
}

// ---- pools -----------------------------------------------------------------------------------

class PoolsTest : public PoliciesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    int pools = 0;
    raw("cuDeviceGetAttribute", &pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
    if (pools == 0) GTEST_SKIP() << "the device has no memory pools";
  }
  static CUmemoryPool default_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(driver_call("cuDeviceGetDefaultMemPool", &pool, 0), CUDA_SUCCESS);
    return pool;
  }
  static CUmemoryPool current_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(driver_call("cuDeviceGetMemPool", &pool, 0), CUDA_SUCCESS);
    return pool;
  }
  static CUmemoryPool make_pool(int device = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(
        driver_call("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&properties)),
        CUDA_SUCCESS);
    return pool;
  }
  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    driver_call("cuMemAllocAsync", &address, bytes, static_cast<CUstream>(nullptr));
    return address;
  }
  static CUmemoryPool pool_of(CUdeviceptr address) {
    CUmemoryPool pool = nullptr;
    driver_call("cuPointerGetAttribute", static_cast<void*>(&pool),
                CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    return pool;
  }
  std::uint64_t threshold(CUmemoryPool pool) const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(raw("cuMemPoolGetAttribute", pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                  static_cast<void*>(&bytes)),
              CUDA_SUCCESS);
    return bytes;
  }
  static CUresult set_threshold(CUmemoryPool pool, std::uint64_t bytes) {
    return driver_call("cuMemPoolSetAttribute", pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                       static_cast<void*>(&bytes));
  }
};

TEST_P(PoolsTest, TheDefaultOneIsTheTenantsOwn) {
  CUmemoryPool real = nullptr;
  ASSERT_EQ(raw("cuDeviceGetDefaultMemPool", &real, 0), CUDA_SUCCESS);
  const std::uint64_t before = threshold(real);
  Tenant first = open(broker, "first", GetParam());
  Tenant second = open(broker, "second", GetParam());
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  first.run(0, [&] {
    pool = default_pool();
    EXPECT_NE(pool, real);
    EXPECT_EQ(default_pool(), pool);
    EXPECT_EQ(current_pool(), pool);
    EXPECT_EQ(set_threshold(pool, 8 * mib), CUDA_SUCCESS);
    EXPECT_EQ(threshold(pool), 8 * mib);
    address = allocate(mib);
    EXPECT_EQ(pool_of(address), pool);
    EXPECT_EQ(driver_call("cuMemPoolDestroy", pool), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_threshold(real, 8 * mib), CUDA_ERROR_NOT_PERMITTED) << "it is nobody's";
  });
  second.run(0, [&] {
    EXPECT_NE(default_pool(), pool);
    EXPECT_EQ(threshold(default_pool()), before);
    EXPECT_NE(pool_of(allocate(mib)), pool);
    EXPECT_EQ(driver_call("cuMemPoolTrimTo", pool, std::size_t{0}), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(driver_call("cuMemPoolTrimTo", default_pool(), std::size_t{0}), CUDA_SUCCESS);
  });
  EXPECT_EQ(threshold(real), before);
  EXPECT_EQ(first.run(0, [&] { return driver_call("cuMemFree_v2", address); }), CUDA_SUCCESS);
  // Without the gate: one for all.
  const CUmemoryPool seen[] = {first.run(0,
                                         [&] {
                                           CUmemoryPool one = nullptr;
                                           raw("cuDeviceGetDefaultMemPool", &one, 0);
                                           return one;
                                         }),
                               real};
  EXPECT_EQ(seen[0], seen[1]);
}

TEST_P(PoolsTest, TheCurrentOneIsTheTenantsOwn) {
  CUmemoryPool real = nullptr;
  ASSERT_EQ(raw("cuDeviceGetMemPool", &real, 0), CUDA_SUCCESS);
  Tenant first = open(broker, "first", GetParam());
  Tenant second = open(broker, "second", GetParam());
  CUmemoryPool theirs = second.run(0, [&] { return make_pool(); });
  first.run(0, [&] {
    const CUmemoryPool pool = make_pool();
    EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, pool), CUDA_SUCCESS);
    EXPECT_EQ(current_pool(), pool);
    EXPECT_EQ(pool_of(allocate(mib)), pool);
    EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, theirs), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(driver_call("cuMemPoolDestroy", pool), CUDA_SUCCESS);
    EXPECT_EQ(current_pool(), default_pool());
    if (broker.devices().size() > 1) {
      EXPECT_EQ(driver_call("cuDeviceSetMemPool", 0, make_pool(1)), CUDA_ERROR_INVALID_VALUE);
    }
  });
  EXPECT_NE(second.run(0, [&] { return current_pool(); }), real);
  CUmemoryPool now = nullptr;
  raw("cuDeviceGetMemPool", &now, 0);
  EXPECT_EQ(now, real);
}

// Whatever became of the context that it was allocated in.
TEST_P(PoolsTest, AllOfItIsGivenBackAtTheEnd) {
  Tenant watcher = open(broker, "watcher", LeaseKind::shared);
  for (const bool loses_its_lease : {false, true}) {
    Tenant tenant = open(broker, "leaks", GetParam());
    tenant.run(0, [&] {  // what the first use takes for good
      EXPECT_EQ(driver_call("cuMemFree_v2", allocate(mib)), CUDA_SUCCESS);
    });
    const std::size_t before = free_memory(watcher);
    tenant.run(0, [&] {
      ASSERT_NE(allocate(96 * mib), 0U);
      ASSERT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
    });
    EXPECT_LE(free_memory(watcher), before - 64 * mib);
    EXPECT_EQ(held(tenant, "device memory").bytes, 96 * mib);
    if (loses_its_lease) lose_lease(tenant);
    tenant.close();
    EXPECT_GE(free_memory(watcher) + 32 * mib, before) << loses_its_lease;
  }
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x device memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("memory pool"))));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, PoolsTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::green, LeaseKind::private_own),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_F(PoliciesTest, MemoryOfAPoolIsInTheBudget) {
  Tenant poor = open(broker, "poor", LeaseKind::green, 4 * mib);
  poor.run(0, [&] {
    CUdeviceptr address = 0;
    const CUstream none = nullptr;
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 3 * mib, none), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 2 * mib, none), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(driver_call("cuMemFreeAsync", address, none), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAllocAsync", &address, 2 * mib, none), CUDA_SUCCESS);
  });
}

TEST_F(PoliciesTest, MemoryOfGraphsIsTheDevicesAndStaysAsItIs) {
  Tenant tenant = open(broker, "trims", LeaseKind::green);
  tenant.run(0, [&] {
    std::uint64_t bytes = 0;
    EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 99), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(driver_call("cuDeviceGetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                          static_cast<void*>(&bytes)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDeviceSetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                          static_cast<void*>(&bytes)),
              CUDA_ERROR_NOT_PERMITTED);
  });
  EXPECT_THAT(said(), Contains(HasSubstr("cuDeviceGraphMemTrim: ignored")));
  EXPECT_EQ(driver_call("cuDeviceGraphMemTrim", 0), CUDA_SUCCESS) << "the host's is real";
}

// ---- mapped memory ---------------------------------------------------------------------------

class MappingTest : public PoliciesTest {
 protected:
  MappingTest() {
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  void SetUp() override {
    int there = 0;
    raw("cuDeviceGetAttribute", &there, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    if (there == 0) GTEST_SKIP() << "the device maps no memory";
    raw("cuMemGetAllocationGranularity", &unit,
        static_cast<const CUmemAllocationProp*>(&properties), CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    ASSERT_GT(unit, 0U);
    unit = (8 * mib + unit - 1) / unit * unit;
  }
  CUresult create(CUmemGenericAllocationHandle* handle) const {
    return driver_call("cuMemCreate", handle, unit,
                       static_cast<const CUmemAllocationProp*>(&properties), 0ULL);
  }
  CUdeviceptr reserve(std::size_t units) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAddressReserve", &address, units * unit, std::size_t{0},
                          CUdeviceptr{0}, 0ULL),
              CUDA_SUCCESS);
    return address;
  }
  CUresult map(CUdeviceptr address, CUmemGenericAllocationHandle handle) const {
    return driver_call("cuMemMap", address, unit, std::size_t{0}, handle, 0ULL);
  }
  CUresult unmap(CUdeviceptr address, std::size_t units = 1) const {
    return driver_call("cuMemUnmap", address, units * unit);
  }
  CUresult set_access(CUdeviceptr address, CUmemAccess_flags flags) {
    access.flags = flags;
    return driver_call("cuMemSetAccess", address, unit,
                       static_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
  }
  static CUresult release(CUmemGenericAllocationHandle handle) {
    return driver_call("cuMemRelease", handle);
  }
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
  std::size_t unit = 0;  // bytes
};

TEST_F(MappingTest, IsTheTenantsOwn) {
  Tenant owner = open(broker, "owner", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  owner.run(0, [&] {
    address = reserve(2);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    ASSERT_EQ(set_access(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemsetD8_v2", address, static_cast<unsigned char>(7), unit),
              CUDA_SUCCESS);
  });
  other.run(0, [&] {
    CUmemGenericAllocationHandle taken = 0, own = 0;
    EXPECT_EQ(unmap(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(address, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(release(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuMemRetainAllocationHandle", &taken, reinterpret_cast<void*>(address)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuMemAddressFree", address, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(create(&own), CUDA_SUCCESS);
    EXPECT_EQ(map(address + unit, own), CUDA_ERROR_INVALID_VALUE) << "the neighbour's addresses";
    const CUdeviceptr here = reserve(1);
    EXPECT_EQ(map(here, memory), CUDA_ERROR_INVALID_VALUE) << "the neighbour's memory";
    EXPECT_EQ(map(here, own), CUDA_SUCCESS);
  });
  EXPECT_GE(other.strikes(), 6U);
  owner.run(0, [&] {
    unsigned char byte = 0;
    EXPECT_EQ(driver_call("cuMemcpyDtoH_v2", static_cast<void*>(&byte), address, std::size_t{1}),
              CUDA_SUCCESS);
    EXPECT_EQ(byte, 7);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAddressFree", address, 2 * unit), CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(owner).held_things, 0U);
  EXPECT_EQ(owner.strikes(), 0U);
  // Without the gate the neighbour's mapping can be ended by anybody.
  owner.run(0, [&] {
    address = reserve(1);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(other.run(0, [&] { return raw("cuMemUnmap", address, unit); }), CUDA_SUCCESS);
  EXPECT_EQ(owner.run(0, [&] { return map(address, memory); }), CUDA_SUCCESS);
}

// Released memory is there as long as it is mapped, by whichever mapping.
TEST_F(MappingTest, CountsUntilItIsNeitherHeldNorMapped) {
  Tenant tenant = open(broker, "counts", LeaseKind::green, 3 * unit / 2);
  tenant.run(0, [&] {
    CUmemGenericAllocationHandle memory = 0, again = 0;
    const CUdeviceptr address = reserve(2);
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address + unit, memory), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    ASSERT_EQ(driver_call("cuMemRetainAllocationHandle", &again, reinterpret_cast<void*>(address)),
              CUDA_SUCCESS);
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    EXPECT_EQ(release(again), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    EXPECT_EQ(held(tenant, "physical memory").count, 0U);
    EXPECT_EQ(create(&memory), CUDA_ERROR_OUT_OF_MEMORY) << "over the budget";
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    EXPECT_EQ(unmap(address + unit), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
    EXPECT_EQ(create(&memory), CUDA_SUCCESS);
    ASSERT_EQ(map(address, memory), CUDA_SUCCESS);
    EXPECT_EQ(unmap(address), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit) << "it is held still";
    EXPECT_EQ(release(memory), CUDA_SUCCESS);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
  });
}

TEST_F(MappingTest, AllOfItIsGivenBackAtTheEnd) {
  Tenant watcher = open(broker, "watcher", LeaseKind::shared);
  for (const LeaseKind kind : {LeaseKind::green, LeaseKind::private_own}) {
    for (const bool loses_its_lease : {false, true}) {
      Tenant tenant = open(broker, "leaks", kind);
      tenant.run(0, [] {});
      const std::size_t before = free_memory(watcher);
      CUdeviceptr address = 0;
      tenant.run(0, [&] {
        CUmemGenericAllocationHandle kept = 0, released = 0;
        address = reserve(4);
        ASSERT_EQ(create(&kept), CUDA_SUCCESS);
        ASSERT_EQ(create(&released), CUDA_SUCCESS);
        ASSERT_EQ(map(address, kept), CUDA_SUCCESS);
        ASSERT_EQ(map(address + unit, released), CUDA_SUCCESS);
        ASSERT_EQ(release(released), CUDA_SUCCESS);
      });
      EXPECT_LE(free_memory(watcher) + 2 * unit, before);
      if (loses_its_lease) lose_lease(tenant);
      tenant.close();
      EXPECT_GE(free_memory(watcher) + unit, before);
      // The addresses are nobody's any more.
      watcher.run(0, [&] { EXPECT_NE(raw("cuMemAddressFree", address, 4 * unit), CUDA_SUCCESS); });
    }
  }
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 2 x memory mapping, "
                                         "1 x address reservation, 1 x physical memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

// ---- memory of graphs ------------------------------------------------------------------------

class GraphMemoryTest : public PoliciesTest {
 protected:
  struct Made {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr address = 0;
  };
  static constexpr std::size_t bytes = 4 * mib;

  static CUdeviceptr add_allocation(CUgraph graph, CUresult expected = CUDA_SUCCESS) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = bytes;
    CUgraphNode node = nullptr;
    EXPECT_EQ(driver_call("cuGraphAddMemAllocNode", &node, graph,
                          static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, &parameters),
              expected);
    return parameters.dptr;
  }
  static CUresult add_freeing(CUgraph graph, CUdeviceptr address) {
    CUgraphNode node = nullptr;
    return driver_call("cuGraphAddMemFreeNode", &node, graph,
                       static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, address);
  }
  static Made make_graph() {
    Made made;
    EXPECT_EQ(driver_call("cuGraphCreate", &made.graph, 0U), CUDA_SUCCESS);
    made.address = add_allocation(made.graph);
    instantiate(made);
    return made;
  }
  static void instantiate(Made& made) {
    EXPECT_EQ(driver_call("cuGraphInstantiateWithFlags", &made.exec, made.graph, 0ULL),
              CUDA_SUCCESS);
  }
  static CUresult launch(const Made& made) {
    const CUresult status = driver_call("cuGraphLaunch", made.exec, CUstream{nullptr});
    EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
    return status;
  }
  static void destroy(const Made& made) {
    EXPECT_EQ(driver_call("cuGraphExecDestroy", made.exec), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", made.graph), CUDA_SUCCESS);
  }
  static CUresult free(CUdeviceptr address) { return driver_call("cuMemFree_v2", address); }
  // Without what the driver keeps for the next launch.
  std::uint64_t used() const {
    std::uint64_t now = 0;
    raw("cuDeviceGraphMemTrim", 0);
    raw("cuDeviceGetGraphMemAttribute", 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        static_cast<void*>(&now));
    return now;
  }
  std::uint64_t held_memory(const Tenant& tenant) {
    return held(tenant, "memory of a graph").count;
  }
};

TEST_F(GraphMemoryTest, IsItsOwnersToFree) {
  Tenant owner = open(broker, "owner", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  const Made made = owner.run(0, [&] {
    const Made one = make_graph();
    EXPECT_EQ(launch(one), CUDA_SUCCESS);
    return one;
  });
  EXPECT_EQ(held(owner, "memory of a graph").bytes, bytes);
  other.run(0, [&] {
    CUgraph graph = nullptr;
    EXPECT_EQ(free(made.address), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
    EXPECT_EQ(add_freeing(graph, made.address), CUDA_ERROR_INVALID_VALUE);
  });
  EXPECT_EQ(other.strikes(), 2U);
  EXPECT_GE(used(), bytes);
  owner.run(0, [&] {
    EXPECT_EQ(free(made.address), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(owner), 1U) << "the graph allocates it again";
    EXPECT_EQ(launch(made), CUDA_SUCCESS);
    destroy(made);
    EXPECT_EQ(held_memory(owner), 1U) << "it outlives the graph";
    EXPECT_EQ(driver_call("cuMemFreeAsync", made.address, CUstream{nullptr}), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(owner), 0U);
    const Made never = make_graph();
    EXPECT_EQ(held_memory(owner), 1U);
    destroy(never);
    EXPECT_EQ(held_memory(owner), 0U) << "no launch has allocated it";
  });
  EXPECT_EQ(owner.strikes(), 0U);
  EXPECT_EQ(metrics_of(owner).held_bytes, 0U);
}

TEST_F(GraphMemoryTest, OfACaptureIsTheGraphs) {
  Tenant tenant = open(broker, "captures", LeaseKind::green);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    Made made;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemAllocAsync", &made.address, bytes, stream), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(tenant), 1U);
    EXPECT_EQ(driver_call("cuMemFreeAsync", made.address, stream), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamEndCapture", stream, &made.graph), CUDA_SUCCESS);
    instantiate(made);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(launch(made), CUDA_SUCCESS);
    EXPECT_EQ(held_memory(tenant), 1U);
    destroy(made);
    EXPECT_EQ(held_memory(tenant), 0U);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(GraphMemoryTest, IsInTheBudget) {
  Tenant poor = open(broker, "poor", LeaseKind::green, bytes + mib);
  poor.run(0, [&] {
    CUgraph graph = nullptr;
    ASSERT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
    EXPECT_NE(add_allocation(graph), 0U);
    add_allocation(graph, CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(GraphMemoryTest, IsGivenBackAtTheEnd) {
  for (const bool graph_is_there : {true, false}) {
    Tenant tenant = open(broker, "leaks", LeaseKind::green);
    tenant.run(0, [&] {
      const Made made = make_graph();
      EXPECT_EQ(launch(made), CUDA_SUCCESS);
      make_graph();  // never launched
      if (!graph_is_there) destroy(made);
    });
    EXPECT_GE(used(), bytes);
    tenant.close();
    EXPECT_EQ(used(), 0U) << graph_is_there;
    EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x memory of a "
                                           "graph, ")));
  }
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

// ---- names -----------------------------------------------------------------------------------

TEST_F(PoliciesTest, NamesOfOtherApisAreKnown) {
  Tenant tenant = open(broker, "looks", LeaseKind::green, mib);
  const auto look_up = [](const char* name) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult result{};
    return driver_call("cuGetProcAddress_v2", name, &found, 13000, cuuint64_t{0}, &result);
  };
  tenant.run(0, [&] {
    for (const char* name :
         {"", "cuGLCtxCreate", "cuGLGetDevices", "cuGraphicsGLRegisterImage", "cuVDPAUGetDevice",
          "cuGraphicsVDPAURegisterOutputSurface", "cuVDPAUCtxCreate", "cuEGLStreamConsumerConnect",
          "cuGraphicsEGLRegisterImage", "cuEventCreateFromEGLSync"}) {
      look_up(name);
    }
    EXPECT_THAT(said(), Not(Contains(HasSubstr("unknown to this version"))));
    // What the driver itself does not know, it may answer with an error.
    if (look_up("cuOfALaterDriver") == CUDA_SUCCESS) {
      EXPECT_THAT(said(), Contains(HasSubstr("cuOfALaterDriver: looked up, and unknown")));
    }
    // A context that they make is in the budget as well.
    CUcontext context = nullptr;
    if (driver_has("cuGLCtxCreate_v2")) {
      EXPECT_EQ(driver_call("cuGLCtxCreate_v2", &context, 0U, 0), CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (driver_has("cuVDPAUCtxCreate_v2")) {
      EXPECT_EQ(
          driver_call("cuVDPAUCtxCreate_v2", &context, 0U, 0, 0U, static_cast<void*>(nullptr)),
          CUDA_ERROR_OUT_OF_MEMORY);
    }
  });
}

// ---- budgets from a policy file --------------------------------------------------------------

TEST_F(PoliciesTest, APolicysBudgetIsKeptByTheGate) {
  BrokerOptions governed = options();
  governed.policy = parse_policy(
      R"({"schema": "ctxbroker.policy/1", "for_all": {"driver_memory_budget": 4194304},
          "by_id": {"org.example.effect": {"driver_memory_budget": 1048576}}})",
      "test");
  Broker limited = Broker::open(governed);
  governed.use_gate = false;
  Broker without = Broker::open(governed);
  const auto most = [](Broker& in, const char* name, std::uint64_t by_host) {  // MiB at once
    Tenant tenant = open(in, name, LeaseKind::green, by_host);
    std::size_t got = 0;
    tenant.run(0, [&] {
      for (const std::size_t wanted : {1U, 2U, 4U, 8U}) {
        CUdeviceptr address = 0;
        if (driver_call("cuMemAlloc_v2", &address, wanted * mib) != CUDA_SUCCESS) continue;
        got = wanted;
        driver_call("cuMemFree_v2", address);
      }
    });
    return got;
  };
  EXPECT_EQ(most(limited, "org.example.effect", 0), 1U);
  EXPECT_EQ(most(limited, "another", 0), 4U);
  EXPECT_EQ(most(limited, "org.example.effect", 2 * mib), 2U) << "the host's stands above it";
  EXPECT_EQ(most(broker, "org.example.effect", 0), 8U) << "without a policy";
  EXPECT_EQ(most(without, "org.example.effect", 0), 8U);
  EXPECT_THAT(said(), Contains(HasSubstr("its budget of 1048576 bytes is not kept")));
}

// ---- contexts in the budget ------------------------------------------------------------------

TEST_F(PoliciesTest, ContextsAreInTheBudget) {
  Tenant poor = open(broker, "poor", LeaseKind::green, 64 * mib);
  Tenant rich = open(broker, "rich", LeaseKind::green);
  CUcontext context = nullptr;
  poor.run(0, [&] {
    EXPECT_EQ(driver_call("cuCtxCreate_v2", &context, 0U, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_EQ(metrics_of(poor).held_bytes, 0U);
  rich.run(0, [&] {
    std::size_t before = 0, after = 0, total = 0;
    raw("cuMemGetInfo_v2", &before, &total);
    ASSERT_EQ(driver_call("cuCtxCreate_v2", &context, 0U, 0), CUDA_SUCCESS);
    raw("cuMemGetInfo_v2", &after, &total);
    EXPECT_EQ(held(rich, "context").count, 1U);
    EXPECT_EQ(held(rich, "context").bytes, before - after);
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxDestroy_v2", context), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(rich).held_bytes, 0U) << "what was made in it has ended with it";
}

// ---- what is held ----------------------------------------------------------------------------

TEST_F(PoliciesTest, WhatIsHeldIsToldByKind) {
  Tenant tenant = open(broker, "holds", LeaseKind::green);
  Tenant other = open(broker, "other", LeaseKind::green);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr address = 0;
    CUcontext context = nullptr;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
    }
    ASSERT_EQ(driver_call("cuEventCreate", &event, 0U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &context, 0), CUDA_SUCCESS);
  });
  EXPECT_EQ(held(tenant, "stream").count, 2U);
  EXPECT_EQ(held(tenant, "event").count, 1U);
  EXPECT_EQ(held(tenant, "device memory").count, 2U);
  EXPECT_EQ(held(tenant, "device memory").bytes, 2 * mib);
  EXPECT_EQ(held(tenant, "primary context").count, 1U);
  EXPECT_EQ(metrics_of(tenant).held_things, 5U);
  EXPECT_TRUE(metrics_of(other).held.empty());
  EXPECT_THAT(to_json(broker.metrics()), HasSubstr("\"device memory\": {\n"));
}

}  // namespace
}  // namespace ctxbroker
