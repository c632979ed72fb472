// SPDX-License-Identifier: Apache-2.0
// What a tenant's code may hold through the driver, beside device memory: a limit for each kind.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/host.h"
#include "rules_fixture.hpp"
#include "support/kernels.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Something that is made and ended by the tenant's code.
struct Thing {
  const char* name;  // of the limit
  std::optional<std::uint64_t> DriverLimits::*limit;
  std::uint64_t each;  // what one takes of it
  std::function<CUresult(std::uint64_t*)> make;
  std::function<CUresult(std::uint64_t)> end;
};

// Calls that make a handle, and that take it.
template <typename Handle, typename... Rest>
std::function<CUresult(std::uint64_t*)> makes(const char* symbol, Rest... rest) {
  return [=](std::uint64_t* out) {
    Handle handle{};
    const CUresult status = driver_call(symbol, &handle, rest...);
    *out = reinterpret_cast<std::uint64_t>(handle);
    return status;
  };
}
template <typename Handle>
std::function<CUresult(std::uint64_t)> ends(const char* symbol) {
  return
      [=](std::uint64_t handle) { return driver_call(symbol, reinterpret_cast<Handle>(handle)); };
}
CUresult make_registration(std::uint64_t* out) {
  void* const pages = std::aligned_alloc(4096, mib);
  *out = reinterpret_cast<std::uint64_t>(pages);
  const CUresult status = driver_call("cuMemHostRegister_v2", pages, mib, 0U);
  if (status != CUDA_SUCCESS) std::free(pages);
  return status;
}
CUresult end_registration(std::uint64_t handle) {
  void* const pages = reinterpret_cast<void*>(handle);
  const CUresult status = driver_call("cuMemHostUnregister", pages);
  std::free(pages);
  return status;
}
CUresult make_exec(std::uint64_t* out) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUresult status = driver_call("cuGraphCreate", &graph, 0U);
  if (status != CUDA_SUCCESS) return status;
  status = driver_call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
  driver_call("cuGraphDestroy", graph);
  *out = reinterpret_cast<std::uint64_t>(exec);
  return status;
}
// Makes a context and takes it off the thread, because the driver makes a new context current.
CUresult make_context(std::uint64_t* out) {
  CUcontext context = nullptr, popped = nullptr;
  const CUresult status = driver_call("cuCtxCreate_v2", &context, 0U, 0);
  if (status == CUDA_SUCCESS) driver_call("cuCtxPopCurrent_v2", &popped);
  *out = reinterpret_cast<std::uint64_t>(context);
  return status;
}

// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks): of std::function, where nothing leaks
std::vector<Thing> things() {
  const auto* const text = static_cast<const void*>(empty_ptx);
  return {
      {"pinned_memory", &DriverLimits::pinned_memory, mib,
       makes<void*>("cuMemAllocHost_v2", std::size_t{mib}), ends<void*>("cuMemFreeHost")},
      {"pinned_memory", &DriverLimits::pinned_memory, mib,
       makes<void*>("cuMemHostAlloc", std::size_t{mib}, 0U), ends<void*>("cuMemFreeHost")},
      {"pinned_memory", &DriverLimits::pinned_memory, mib, make_registration, end_registration},
      {"streams", &DriverLimits::streams, 1, makes<CUstream>("cuStreamCreate", 1U),
       ends<CUstream>("cuStreamDestroy_v2")},
      {"events", &DriverLimits::events, 1, makes<CUevent>("cuEventCreate", 0U),
       ends<CUevent>("cuEventDestroy_v2")},
      {"graphs", &DriverLimits::graphs, 1, makes<CUgraph>("cuGraphCreate", 0U),
       ends<CUgraph>("cuGraphDestroy")},
      {"modules", &DriverLimits::modules, 1, makes<CUmodule>("cuModuleLoadData", text),
       ends<CUmodule>("cuModuleUnload")},
      {"contexts", &DriverLimits::contexts, 1, make_context, ends<CUcontext>("cuCtxDestroy_v2")}};
}
// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

class LimitsTest : public RulesTest {
 protected:
  Tenant open_limited(const char* name, std::optional<std::uint64_t> DriverLimits::*limit,
                      std::uint64_t most, LeaseKind kind = LeaseKind::shared) {
    TenantOptions options{LeaseChoice(kind)};
    options.driver_limits.*limit = most;
    return broker.open_tenant(name, options);
  }
};

class EachLimitTest : public LimitsTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(EachLimitTest, CreationBeyondTheLimitIsRefused) {
  const Thing thing = things()[GetParam()];
  SCOPED_TRACE(thing.name);
  Tenant limited = open_limited("limited", thing.limit, 2 * thing.each);
  Tenant free = open_limited("free", thing.limit, 0);
  std::vector<std::uint64_t> made(4);
  limited.run(0, [&] {
    EXPECT_EQ(thing.make(&made[0]), CUDA_SUCCESS);
    EXPECT_EQ(thing.make(&made[1]), CUDA_SUCCESS);
    EXPECT_EQ(thing.make(&made[2]), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(thing.end(made[0]), CUDA_SUCCESS);
    EXPECT_EQ(thing.make(&made[0]), CUDA_SUCCESS) << "what was ended makes room";
    EXPECT_EQ(thing.make(&made[2]), CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr(std::string("limit: driver_limits.") + thing.name),
                                     HasSubstr("may hold " + std::to_string(2 * thing.each)),
                                     HasSubstr("holds " + std::to_string(2 * thing.each)),
                                     HasSubstr("TenantOptions"), HasSubstr("policy file"))));
  limited.run(0, [&] {
    for (const std::size_t left : {0, 1}) EXPECT_EQ(thing.end(made[left]), CUDA_SUCCESS);
  });
  // Without the limit, the tenant takes them.
  free.run(0, [&] {
    for (std::uint64_t& one : made) EXPECT_EQ(thing.make(&one), CUDA_SUCCESS);
    for (const std::uint64_t one : made) EXPECT_EQ(thing.end(one), CUDA_SUCCESS);
  });
}

// The limit, and its one record, are for calls that would do something.
TEST_F(LimitsTest, RegistrationWithoutAContextIsRefusedByTheDriver) {
  Tenant tenant = open_limited("registers", &DriverLimits::pinned_memory, mib);
  void* const address = reinterpret_cast<void*>(std::uintptr_t{4096});
  constexpr std::size_t too_much = ~std::size_t{0};
  const auto limit_is_told = Contains(HasSubstr("limit: driver_limits.pinned_memory"));
  tenant.run(0, [&] {
    CUcontext context = nullptr;
    ASSERT_EQ(driver_call("cuCtxPopCurrent_v2", &context), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostRegister_v2", address, too_much, 0U),
              raw.call("cuMemHostRegister_v2", address, too_much, 0U));
    EXPECT_THAT(said(), ::testing::Not(limit_is_told));
    ASSERT_EQ(driver_call("cuCtxPushCurrent_v2", context), CUDA_SUCCESS);
    // The control: with a context, the limit comes first.
    EXPECT_EQ(driver_call("cuMemHostRegister_v2", address, too_much, 0U), CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_THAT(said(), limit_is_told);
  EXPECT_EQ(tenant.strikes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Things, EachLimitTest, ::testing::Range(std::size_t{0}, things().size()),
                         [](const auto& test) {
                           return std::to_string(test.param) + "_" + things()[test.param].name;
                         });

TEST_F(LimitsTest, GraphsAndExecutableGraphsAreCountedTogether) {
  Tenant tenant = open_limited("graphs", &DriverLimits::graphs, 2);
  tenant.run(0, [] {
    std::uint64_t first = 0, second = 0;
    EXPECT_EQ(make_exec(&first), CUDA_SUCCESS) << "its graph is ended";
    EXPECT_EQ(make_exec(&second), CUDA_ERROR_OUT_OF_MEMORY) << "a graph would fit";
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_call("cuGraphCreate", &graph, 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
    EXPECT_EQ(ends<CUgraphExec>("cuGraphExecDestroy")(first), CUDA_SUCCESS);
  });
}

// Nothing may be left capturing, and what was captured into the tenant's graph is one graph.
TEST_F(LimitsTest, ACaptureEndsAlthoughItsGraphIsRefused) {
  Tenant tenant = open_limited("captures", &DriverLimits::graphs, 1);
  tenant.run(0, [this] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const auto begin = [&] {
      return driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    };
    const auto end = [&](CUgraph* graph) {
      return driver_call("cuStreamEndCapture", stream, graph);
    };
    CUgraph first = nullptr, second = nullptr;
    ASSERT_EQ(begin(), CUDA_SUCCESS);
    ASSERT_EQ(end(&first), CUDA_SUCCESS);
    ASSERT_EQ(begin(), CUDA_SUCCESS);
    EXPECT_EQ(end(&second), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(second, nullptr);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(driver_call("cuStreamIsCapturing", stream, &capture), CUDA_SUCCESS);
    EXPECT_EQ(capture, CU_STREAM_CAPTURE_STATUS_NONE);
    const void* const none = nullptr;
    if (raw.find("cuStreamBeginCaptureToGraph") != nullptr &&
        driver_call("cuStreamBeginCaptureToGraph", stream, first, none, none, std::size_t{0},
                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS) {
      EXPECT_EQ(end(&second), CUDA_SUCCESS);
      EXPECT_EQ(second, first);
    }
    EXPECT_EQ(driver_call("cuGraphDestroy", first), CUDA_SUCCESS);
    ASSERT_EQ(begin(), CUDA_SUCCESS);
    EXPECT_EQ(end(&first), CUDA_SUCCESS) << "there is room again";
  });
  EXPECT_EQ(held(tenant, "graph").count, 1U);
}

// Physical memory and pools can be the host's too.
TEST_F(LimitsTest, MemoryInTheHostCountsAsPinnedMemory) {
  Tenant limited = open_limited("limited", &DriverLimits::pinned_memory, 1);
  Tenant free = open_limited("free", &DriverLimits::pinned_memory, 0);
  const auto create = [] {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    CUmemGenericAllocationHandle memory = 0;
    const auto* const given = &properties;
    const CUresult status = driver_call("cuMemCreate", &memory, 2 * mib, given, 0ULL);
    if (status == CUDA_SUCCESS) driver_call("cuMemRelease", memory);
    return status;
  };
  const auto allocate = [] {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    CUmemoryPool pool = nullptr;
    const auto* const given = &properties;
    if (driver_call("cuMemPoolCreate", &pool, given) != CUDA_SUCCESS) return CUDA_SUCCESS;
    CUdeviceptr memory = 0;
    constexpr CUstream none = nullptr;
    const CUresult status = driver_call("cuMemAllocFromPoolAsync", &memory, mib, pool, none);
    if (status == CUDA_SUCCESS) driver_call("cuMemFreeAsync", memory, none);
    driver_call("cuMemPoolDestroy", pool);
    return status;
  };
  EXPECT_EQ(limited.run(0, create), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(said(), Contains(HasSubstr("driver_limits.pinned_memory")));
  EXPECT_NE(free.run(0, create), CUDA_ERROR_OUT_OF_MEMORY) << "the driver may lack it";
  // A driver without such pools has said so.
  const CUresult allocated = free.run(0, allocate);
  EXPECT_EQ(allocated, CUDA_SUCCESS);
  if (limited.run(0, allocate) != CUDA_SUCCESS) {
    EXPECT_EQ(limited.run(0, allocate), CUDA_ERROR_OUT_OF_MEMORY);
  }
}

TEST_F(LimitsTest, ThreadsTogetherDoNotExceedALimit) {
  constexpr std::uint64_t most = 100;
  Tenant tenant = open_limited("many", &DriverLimits::events, most);
  tenant.lease();
  std::atomic<std::uint64_t> made{0}, refused{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        tenant.run(0, [&] {
          for (int j = 0; j < 50; ++j) {
            CUevent event = nullptr;
            const CUresult status = driver_call("cuEventCreate", &event, 0U);
            ++(status == CUDA_SUCCESS ? made : refused);
          }
        });
      });
    }
  }
  EXPECT_EQ(made, most);
  EXPECT_EQ(refused, 400 - most);
  EXPECT_EQ(held(tenant, "event").count, most);
}

// Pinned memory was not in the budget for device memory, and streams in none.
TEST_F(LimitsTest, FloodOfStreamsEndsAtTheDefaultLimit) {
  Tenant tenant = open(broker, "floods", LeaseKind::shared, 64 * mib);
  tenant.run(0, [] {
    int made = 0;
    CUstream stream = nullptr;
    while (made < 5000 && driver_call("cuStreamCreate", &stream, 1U) == CUDA_SUCCESS) ++made;
    EXPECT_EQ(made, 4096);
    void* memory = nullptr;
    EXPECT_EQ(driver_call("cuMemAllocHost_v2", &memory, std::size_t{1} << 50U),
              CUDA_ERROR_OUT_OF_MEMORY);
  });
  EXPECT_THAT(said(), Contains(HasSubstr("driver_limits.streams")));
  EXPECT_THAT(said(), Contains(HasSubstr("driver_limits.pinned_memory")));
}

TEST_F(LimitsTest, LimitOfARuleHoldsUnlessTheHostGivesAnother) {
  BrokerOptions governed = options();
  governed.policy = parse_policy(
      R"({"schema": "ctxbroker.policy/1", "for_all": {"driver_limits": {"streams": 2}},
          "by_id": {"org.example.effect": {"driver_limits": {"streams": 1, "events": 0}}}})",
      "test");
  Broker limited = Broker::open(governed);
  governed.use_gate = false;
  Broker without = Broker::open(governed);
  const auto most = [](Broker& in, const char* name, std::optional<std::uint64_t> by_host) {
    TenantOptions options{LeaseChoice(LeaseKind::shared)};
    options.driver_limits.streams = by_host;
    Tenant tenant = in.open_tenant(name, options);
    return tenant.run(0, [] {
      CUstream stream = nullptr;
      int made = 0;
      while (made < 5 && driver_call("cuStreamCreate", &stream, 1U) == CUDA_SUCCESS) ++made;
      return made;
    });
  };
  EXPECT_EQ(most(limited, "org.example.effect", {}), 1);
  EXPECT_EQ(most(limited, "another", {}), 2);
  EXPECT_EQ(most(limited, "another", 4), 4);
  EXPECT_EQ(most(limited, "another", 0), 5) << "0 is no limit";
  EXPECT_EQ(most(without, "another", {}), 5);
  EXPECT_THAT(said(), Contains(HasSubstr("its limits are not kept: 2 streams")));
}

TEST_F(LimitsTest, HostInCSetsLimits) {
  ctxb_broker* c_broker = nullptr;
  ASSERT_EQ(ctxb_broker_open(nullptr, &c_broker), CTXB_OK) << ctxb_last_error();
  const auto most = [&](std::uint64_t limit) {
    ctxb_tenant_options options{};
    options.size = sizeof options;
    options.lease = CTXB_LEASE_SHARED;
    options.stream_limit = limit;
    options.context_limit = 1;  // the last limit: each has its place
    ctxb_tenant* tenant = nullptr;
    ctxb_guard guard;
    EXPECT_EQ(ctxb_tenant_open(c_broker, "streams", &options, &tenant), CTXB_OK);
    EXPECT_EQ(ctxb_tenant_enter(tenant, 0, nullptr, &guard), CTXB_OK);
    CUstream stream = nullptr;
    int made = 0;
    while (made < 5000 && driver_call("cuStreamCreate", &stream, 1U) == CUDA_SUCCESS) ++made;
    std::uint64_t first = 0, second = 0;
    EXPECT_EQ(make_context(&first), CUDA_SUCCESS);
    EXPECT_EQ(make_context(&second), CUDA_ERROR_OUT_OF_MEMORY);
    ctxb_guard_leave(&guard);
    EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK);
    return made;
  };
  EXPECT_EQ(most(3), 3);
  EXPECT_EQ(most(0), 4096) << "the default";
  EXPECT_EQ(most(UINT64_MAX), 5000);
  EXPECT_EQ(ctxb_broker_close(c_broker), CTXB_OK);
}

}  // namespace
}  // namespace ctxbroker
