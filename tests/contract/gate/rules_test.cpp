// SPDX-License-Identifier: Apache-2.0
// Rules for what needs no file of its own: waits, budgets, names, what is held.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "attacks/attacks.h"
#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- memory that is short --------------------------------------------------------------------

TEST_F(RulesTest, AFullDeviceUnloadsIdleModulesOfOthers) {
  PluginInstance idle = broker.create(broker.load(test_library("behaviours")), "plain",
                                      {Placement(0), LeaseChoice(LeaseKind::green)});
  idle.activate({64, 64, 0, false});
  const auto modules = [&] {
    for (const TenantMetrics& metrics : broker.metrics().tenants) {
      if (metrics.name == "behaviours") return metrics.leases.at(0).modules;
    }
    return std::uint64_t{99};
  };
  TenantOptions with_drivers_memory{LeaseChoice(LeaseKind::green)};
  with_drivers_memory.memory = MemorySource::driver;  // its call is told to fail
  Tenant tenant = broker.open_tenant("hungry", with_drivers_memory);
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

TEST_F(RulesTest, WaitsOfATenantAreTimedAndCountedAsItsOwn) {
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

TEST_F(RulesTest, WaitsOnATenantsOwnThreadAreCounted) {
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

// ---- names -----------------------------------------------------------------------------------

TEST_F(RulesTest, LookUpsOfGraphicsInterfacesAreNotReportedAsUnknown) {
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
    look_up("cuOfNoDriver");  // nothing is handed out
    EXPECT_THAT(said(), Not(Contains(HasSubstr("unknown to this gate"))));
    // A context that they make is in the budget as well.
    CUcontext context = nullptr;
    if (raw.find("cuGLCtxCreate_v2") != nullptr) {
      EXPECT_EQ(driver_call("cuGLCtxCreate_v2", &context, 0U, 0), CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (raw.find("cuVDPAUCtxCreate_v2") != nullptr) {
      EXPECT_EQ(
          driver_call("cuVDPAUCtxCreate_v2", &context, 0U, 0, 0U, static_cast<void*>(nullptr)),
          CUDA_ERROR_OUT_OF_MEMORY);
    }
  });
}

// ---- what the driver refuses -----------------------------------------------------------------

TEST_F(RulesTest, RefusedReleaseOfAUserObjectKeepsItsReferences) {
  Tenant tenant = open(broker, "releases too many", LeaseKind::shared);
  tenant.run(0, [&] {
    CUuserObject object = nullptr;
    static int data = 0;
    const CUhostFn nothing = [](void*) {};
    ASSERT_EQ(driver_call("cuUserObjectCreate", &object, static_cast<void*>(&data), nothing, 2U,
                          unsigned{CU_USER_OBJECT_NO_DESTRUCTOR_SYNC}),
              CUDA_SUCCESS);
    constexpr unsigned too_many = 0x80000000U;
    EXPECT_NE(raw.call("cuUserObjectRelease", object, too_many), CUDA_SUCCESS)
        << "the driver itself, as a control";
    EXPECT_NE(driver_call("cuUserObjectRelease", object, too_many), CUDA_SUCCESS);
    EXPECT_EQ(held(tenant, "user object").count, 1U);
    EXPECT_EQ(driver_call("cuUserObjectRelease", object, 1U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuUserObjectRelease", object, 1U), CUDA_SUCCESS);
  });
  EXPECT_EQ(held(tenant, "user object").count, 0U);
  EXPECT_EQ(tenant.strikes(), 0U);
}

// ---- budgets from a policy file --------------------------------------------------------------

TEST_F(RulesTest, BudgetOfARuleIsKeptByTheGate) {
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
  EXPECT_THAT(said(),
              Contains(HasSubstr("its limits are not kept: 1048576 bytes of device memory")));
}

// ---- contexts in the budget ------------------------------------------------------------------

TEST_F(RulesTest, ContextBeyondTheBudgetIsRefused) {
  Tenant poor = open(broker, "poor", LeaseKind::green, 64 * mib);
  Tenant rich = open(broker, "rich", LeaseKind::green);
  CUcontext context = nullptr;
  poor.run(0, [&] {
    EXPECT_EQ(driver_call("cuCtxCreate_v2", &context, 0U, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_EQ(metrics_of(poor).held_bytes, 0U);
  rich.run(0, [&] {
    std::size_t before = 0, after = 0, total = 0;
    raw.call("cuMemGetInfo_v2", &before, &total);
    ASSERT_EQ(driver_call("cuCtxCreate_v2", &context, 0U, 0), CUDA_SUCCESS);
    raw.call("cuMemGetInfo_v2", &after, &total);
    EXPECT_EQ(held(rich, "context").count, 1U);
    EXPECT_EQ(held(rich, "context").bytes, before - after);
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxDestroy_v2", context), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(rich).held_bytes, 0U) << "what was made in it has ended with it";
}

// ---- what is held ----------------------------------------------------------------------------

// The host is not held back; what it frees is a tenant's no more, unless the driver refuses.
TEST_F(RulesTest, MemoryFreedByTheHostLeavesTheBudget) {
  TenantOptions options{LeaseChoice(LeaseKind::shared)};
  options.driver_memory_budget = 8 * mib;
  options.memory = MemorySource::driver;  // its call is told to fail
  Tenant tenant = broker.open_tenant("freed", options);
  const auto allocate = [&](CUdeviceptr* address) {
    return tenant.run(0, [&] { return driver_call("cuMemAlloc_v2", address, 6 * mib); });
  };
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(allocate(&first), CUDA_SUCCESS);
  ASSERT_EQ(allocate(&second), CUDA_ERROR_OUT_OF_MEMORY);
  const auto free_by_host = [&] {
    CUcontext popped = nullptr;
    raw.call("cuCtxPushCurrent_v2", tenant.lease().context);
    const CUresult status = driver_call("cuMemFree_v2", first);
    raw.call("cuCtxPopCurrent_v2", &popped);
    return status;
  };
  if (const SoftwareControls controls(broker.driver().path); controls) {
    controls.fail_call("cuMemFree_v2", 1, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(free_by_host(), CUDA_ERROR_INVALID_VALUE);
    controls.stop_counting();
    EXPECT_EQ(metrics_of(tenant).held_bytes, 6 * mib);
  }
  EXPECT_EQ(free_by_host(), CUDA_SUCCESS);
  EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
  EXPECT_EQ(metrics_of(tenant).held_things, 0U);
  EXPECT_EQ(allocate(&second), CUDA_SUCCESS);
}

TEST_F(RulesTest, MetricsTellWhatATenantHoldsByKind) {
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
