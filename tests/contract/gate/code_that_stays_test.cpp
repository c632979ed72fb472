// SPDX-License-Identifier: Apache-2.0
// Code of a tenant that stays in the process when the tenant ends: what it holds, its threads, and
// the next tenants that adopt it.
#include <gmock/gmock.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attacks/attacks.h"
#include "gate_fixture.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Matches;

class CodeThatStaysTest : public GateTest {};

// Libraries on the runtime library keep memory from one use to the next: what code that stays
// holds is its next tenant's, and is given back when the code goes.
TEST_F(CodeThatStaysTest, MemoryHeldByCodeThatStaysGoesToItsNextTenant) {
  CUdeviceptr address = 0;
  const AttackTarget nothing{};
  {
    Tenant first = broker.open_tenant("first", {LeaseChoice(LeaseKind::green)});
    AdoptedLibrary library = first.adopt(test_library("attacks_dlsym"));
    first.run(0, [&] {
      symbol<attack_function>(library, ATTACK)("take_private_tables", &nothing);
      address = symbol<allocate_function>(library, ALLOCATE)(1U << 20);
      symbol<attack_function>(library, ATTACK)("create_context_and_leave", &nothing);
    });
  }
  EXPECT_THAT(said(), Contains(HasSubstr("stays with the tenant's code, which stays in the "
                                         "process: 1 x device memory")));
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x context")));
  TenantOptions options{LeaseChoice(LeaseKind::green)};
  options.unload_at_close = true;
  Tenant second = broker.open_tenant("second", options);
  EXPECT_NE(context_of(address), nullptr) << "it is still there";
  EXPECT_EQ(held_bytes("second"), 0U);
  AdoptedLibrary library = second.adopt(test_library("attacks_dlsym"));
  EXPECT_EQ(held_bytes("second"), 1U << 20);
  second.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x device memory")));
  EXPECT_EQ(context_of(address), nullptr);
}

// An object that was destroyed with an earlier tenant does not go to the next one, even if the code
// still knows its handle. The gate does not pass the handle to the driver, because it may be that
// of another object by now.
TEST_F(CodeThatStaysTest, HandlesThatEndedWithATenantDoNotGoToTheNext) {
  struct Scene {
    LeaseKind kind;
    bool in_own_context, stays, event_stays;
  };
  for (const Scene& scene : {Scene{LeaseKind::green, false, false, true},
                             Scene{LeaseKind::private_own, false, false, false},
                             Scene{LeaseKind::shared, true, false, false},
                             Scene{LeaseKind::shared, false, true, true}}) {
    SCOPED_TRACE(std::string(to_string(scene.kind)) + (scene.in_own_context ? ", own" : ""));
    const std::size_t before = said().size();
    CUstream left[2] = {};
    CUevent event = nullptr;
    {
      Tenant first = broker.open_tenant("first", {LeaseChoice(scene.kind)});
      first.adopt(test_library("attacks_dlsym"));
      first.run(0, [&] {
        CUcontext own = nullptr;
        if (scene.in_own_context) driver_call("cuCtxCreate_v2", &own, 0U, 0);
        for (CUstream& stream : left) driver_call("cuStreamCreate", &stream, 1U);
        driver_call("cuEventCreate", &event, 0U);
      });
    }
    TenantOptions options{LeaseChoice(scene.kind)};
    options.unload_at_close = true;
    Tenant second = broker.open_tenant("second", options);
    second.adopt(test_library("attacks_dlsym"));
    EXPECT_EQ(held("second", "stream"), scene.stays ? 2U : 0U);
    EXPECT_EQ(second.run(0, [&] { return driver_call("cuStreamDestroy_v2", left[0]); }),
              scene.stays ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(held("second", "event"), scene.event_stays ? 1U : 0U);
    EXPECT_EQ(second.run(0, [&] { return driver_call("cuEventDestroy_v2", event); }),
              scene.event_stays ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED)
        << "it is the primary's, where the lease is not private";
    EXPECT_EQ(second.strikes(), 0U) << "it is its code's all the same";
    second.close();
    std::vector<std::string> now = said();
    now.erase(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(before));
    EXPECT_EQ(scene.stays, Matches(Contains(HasSubstr("x stream")))(now));
    for (const char* words : {"2 x stream", "gave back what the tenant left: 1 x stream"}) {
      EXPECT_EQ(scene.stays, Matches(Contains(HasSubstr(words)))(now)) << words;
    }
  }
}

// A thread that the code has had since an earlier tenant.
TEST_F(CodeThatStaysTest, ThreadOfCodeThatStaysGoesToItsNextTenant) {
  // The function that a thread was started with is the only sign of the code that it belongs to.
  if (!threads_start_in_their_code) GTEST_SKIP() << "sanitizers start threads in their own code";
  const auto adopt = [](Tenant& tenant) {
    return symbol<allocate_function>(tenant.adopt(test_library("attacks_worker")),
                                     ALLOCATE_ON_WORKER);
  };
  allocate_function* on_worker = nullptr;
  CUcontext of_first = nullptr;
  {
    Tenant first = broker.open_tenant("first", {LeaseChoice(LeaseKind::private_own)});
    on_worker = adopt(first);
    of_first = first.lease().context;
    EXPECT_EQ(context_of(on_worker(64)), of_first);
  }
  EXPECT_EQ(context_of(on_worker(64)), of_first) << "nobody's meanwhile, and not the host's";
  Tenant second = broker.open_tenant("second", {LeaseChoice(LeaseKind::private_own)});
  ASSERT_EQ(adopt(second), on_worker) << "the same code";
  EXPECT_NE(second.lease().context, of_first);
  EXPECT_EQ(context_of(on_worker(64)), second.lease().context);
}

// A tenant reuses what the gate keeps for an earlier tenant that had no code. A process may open
// tenants for as long as it runs, and each of them keeps only a name and a few counters.
TEST_F(CodeThatStaysTest, ATenantWithoutCodeKeepsLittleMemory) {
  const auto heap = [] { return static_cast<std::int64_t>(mallinfo2().uordblks); };
  if (heap() == 0) GTEST_SKIP() << "sanitizers have a heap of their own";
  const auto cycles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Tenant tenant = broker.open_tenant("passes", {LeaseChoice(LeaseKind::shared)});
      const Guard guard(tenant);
    }
  };
  cycles(10);
  const std::int64_t before = heap();
  cycles(1000);
  EXPECT_LT(heap() - before, 1000 * 1000) << "it was 3,700 bytes for each";
}

TEST_F(CodeThatStaysTest, NewTenantHasNoBudgetOrCallsOfTheOneBefore) {
  const auto calls = [&](const char* tenant) {
    std::uint64_t sum = 0;
    for (const TenantMetrics& metrics : broker.metrics().tenants) {
      if (metrics.name != tenant) continue;
      for (const auto& [function, count] : metrics.guarded_calls) sum += count;
    }
    return sum;
  };
  TenantOptions small{LeaseChoice(LeaseKind::shared)};
  small.driver_memory_budget = 64;
  Tenant first = broker.open_tenant("first", small);
  CUdeviceptr address = 0;
  const auto allocate = [&] { return driver_call("cuMemAlloc_v2", &address, std::size_t{4096}); };
  EXPECT_EQ(first.run(0, allocate), CUDA_ERROR_OUT_OF_MEMORY);
  first.close();
  Tenant second = broker.open_tenant("second", {LeaseChoice(LeaseKind::private_own)});
  EXPECT_EQ(calls("second"), 0U);
  EXPECT_EQ(second.run(0, allocate), CUDA_SUCCESS) << "it has a budget of its own";
  EXPECT_EQ(context_of(address), second.lease().context);
  EXPECT_EQ(calls("second"), 1U);
  EXPECT_EQ(calls("first"), 0U);
  EXPECT_EQ(held_bytes("second"), 4096U);
  Tenant third = broker.open_tenant("third", {LeaseChoice(LeaseKind::shared)});
  EXPECT_EQ(third.run(0, [&] { return driver_call("cuMemFree_v2", address); }),
            CUDA_ERROR_INVALID_VALUE)
      << "it is the second one's";
  EXPECT_EQ(third.strikes(), 1U);
  EXPECT_EQ(second.run(0, [&] { return driver_call("cuMemFree_v2", address); }), CUDA_SUCCESS);
}

// A host may keep a closed tenant's object for as long as it likes.
TEST_F(CodeThatStaysTest, TheEndOfAClosedTenantsObjectLeavesItsNextTenantAlone) {
  auto first =
      std::make_unique<Tenant>(broker.open_tenant("first", {LeaseChoice(LeaseKind::shared)}));
  first->adopt(test_library("attacks_dlsym"));
  first->close();
  TenantOptions options{LeaseChoice(LeaseKind::shared)};
  options.unload_at_close = true;
  Tenant second = broker.open_tenant("second", options);
  second.adopt(test_library("attacks_dlsym"));
  CUdeviceptr address = 0;
  second.run(0, [&] { driver_call("cuMemAlloc_v2", &address, std::size_t{64}); });
  first.reset();
  EXPECT_EQ(held("second", "device memory"), 1U);
  EXPECT_EQ(second.run(0, [&] { return driver_call("cuMemFree_v2", address); }), CUDA_SUCCESS);
  EXPECT_EQ(second.strikes(), 0U);
}

// The libraries that a host puts into one tenant need not be those that were in one before.
TEST_F(CodeThatStaysTest, ATenantAdoptsWhatTwoTenantsLeft) {
  CUstream left = nullptr;
  allocate_function* on_worker = nullptr;
  const auto adopt_worker = [&](Tenant& tenant) {
    on_worker =
        symbol<allocate_function>(tenant.adopt(test_library("attacks_worker")), ALLOCATE_ON_WORKER);
  };
  for (const bool worker_first : {true, false}) {
    {
      Tenant one = broker.open_tenant("one", {LeaseChoice(LeaseKind::shared)});
      one.adopt(test_library("attacks_dlsym"));
      one.run(0, [&] { driver_call("cuStreamCreate", &left, 1U); });
      Tenant two = broker.open_tenant("two", {LeaseChoice(LeaseKind::private_own)});
      adopt_worker(two);
      on_worker(64);
    }
    TenantOptions options{LeaseChoice(LeaseKind::private_own)};
    options.unload_at_close = true;
    Tenant both = broker.open_tenant("both", options);
    if (worker_first) adopt_worker(both);
    both.adopt(test_library("attacks_dlsym"));
    if (!worker_first) adopt_worker(both);
    EXPECT_EQ(both.run(0, [&] { return driver_call("cuStreamDestroy_v2", left); }), CUDA_SUCCESS);
    EXPECT_EQ(both.strikes(), 0U);
    if (threads_start_in_their_code) {
      EXPECT_EQ(context_of(on_worker(64)), both.lease().context);
      EXPECT_EQ(held("both", "device memory"), 1U);
    }
  }
}

}  // namespace
}  // namespace ctxbroker
