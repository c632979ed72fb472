// SPDX-License-Identifier: Apache-2.0
// Losses that a tenant's code meets on threads without a guard, where nobody reports a status.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ctxbroker/loss.hpp"
#include "gate_fixture.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string name_of(LeaseKind kind) {
  return kind == LeaseKind::private_own ? "private_own" : to_string(kind);
}

class BareLossesTest : public GateTest {
 protected:
  Tenant open(const std::string& name, LeaseKind kind) {
    TenantOptions with;
    with.lease.kind = kind;
    with.on_loss = [this, name](const LeaseLoss& loss) { told[name].push_back(loss); };
    Tenant tenant = broker.open_tenant(name, with);
    tenant.lease();
    return tenant;
  }
  static AdoptedLibrary adopt(Tenant& tenant) {
    AdoptedLibrary library = tenant.adopt(test_library("bare_threads"));
    EXPECT_EQ(tenant.run(0, [&] { return call(library, "keep"); }), CUDA_SUCCESS);
    return library;
  }
  static int call(const AdoptedLibrary& library, const char* name) {
    return symbol<int()>(library, name)();
  }
  // Tenant::lease would renew a lost one.
  LeaseState state_of(const Tenant& tenant) {
    for (const LeaseInfo& lease : broker.leases()) {
      if (lease.tenant == tenant.id()) return lease.state;
    }
    ADD_FAILURE() << "no lease";
    return LeaseState::hung;
  }
  void expect_told_once(const std::string& name, LossReason reason) {
    broker.poll();
    broker.poll();
    ASSERT_EQ(told[name].size(), 1U) << name;
    EXPECT_EQ(told[name].front().reason, reason) << name;
  }

  std::map<std::string, std::vector<LeaseLoss>> told;  // by the tenant's name
};

TEST_F(BareLossesTest, PrivateContextThatTheHostDestroysIsLostAtOnce) {
  Tenant tenant = open("loser", LeaseKind::private_own),
         neighbour = open("neighbour", LeaseKind::private_own);
  const AdoptedLibrary library = adopt(tenant);
  ASSERT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  ASSERT_EQ(call(library, "keep_stream"), CUDA_SUCCESS);
  for (int time = 0; time < 2; ++time) ASSERT_EQ(call(library, "record"), CUDA_SUCCESS);
  const LeaseInfo old = tenant.lease();
  std::thread([&] { EXPECT_EQ(driver_call("cuCtxDestroy_v2", old.context), CUDA_SUCCESS); }).join();
  EXPECT_EQ(state_of(tenant), LeaseState::lost);
  EXPECT_EQ(state_of(neighbour), LeaseState::ready);
  EXPECT_EQ(call(library, "use"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_told_once("loser", LossReason::destroyed);
  EXPECT_THAT(told["neighbour"], IsEmpty());
  EXPECT_THAT(said(), Contains(HasSubstr("was destroyed by somebody")));

  EXPECT_EQ(call(library, "retain_again"), CUDA_SUCCESS);
  EXPECT_EQ(state_of(tenant), LeaseState::ready);
  EXPECT_GT(tenant.lease().generation, old.generation);
  EXPECT_EQ(call(library, "record"), CUDA_ERROR_CONTEXT_IS_DESTROYED) << "a driver may crash in it";
  EXPECT_EQ(call(library, "end_stream"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(state_of(tenant), LeaseState::ready) << "the stream is of the earlier generation";
  EXPECT_EQ(call(library, "set_and_unset"), CUDA_SUCCESS) << "with the old handle";
  EXPECT_EQ(tenant.strikes() + neighbour.strikes(), 0U);
}

// No call that the driver refuses ends a lease.
TEST_F(BareLossesTest, ContextThatTheDriverDoesNotDestroyStays) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device refuses a call of one's choice";
  Tenant tenant = open("keeper", LeaseKind::private_own);
  controls.fail_call("cuCtxDestroy_v2", 1, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(driver_call("cuCtxDestroy_v2", tenant.lease().context), CUDA_ERROR_NOT_PERMITTED);
  controls.stop_counting();
  EXPECT_EQ(state_of(tenant), LeaseState::ready);
}

TEST_F(BareLossesTest, ContextThatEndsPastTheGateIsLostWithTheFirstCallThatMeetsIt) {
  if (broker.driver().kind == DriverChoice::nvidia) {
    GTEST_SKIP() << "NVIDIA's driver may crash when the handle of a destroyed context is used";
  }
  Tenant tenant = open("loser", LeaseKind::private_own),
         neighbour = open("neighbour", LeaseKind::private_own);
  const AdoptedLibrary library = adopt(tenant);
  ASSERT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  const CUcontext context = tenant.lease().context;
  std::thread([&] { RawDriver(broker.driver().path).destroy_context(context); }).join();
  broker.poll();
  EXPECT_EQ(state_of(tenant), LeaseState::ready) << "nobody has met it";
  EXPECT_EQ(call(library, "use"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(state_of(tenant), LeaseState::lost);
  EXPECT_EQ(state_of(neighbour), LeaseState::ready);
  expect_told_once("loser", LossReason::destroyed);
  EXPECT_EQ(call(library, "set_and_unset"), CUDA_SUCCESS);
  EXPECT_EQ(state_of(tenant), LeaseState::ready);
}

// The handle of the context is alive again, but the store's stream has ended.
TEST_F(BareLossesTest, PrimaryThatIsMadeAgainUnseenIsLostWithTheNextAllocation) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "a shielded primary is destroyed on the software device alone";
  Tenant tenant = open("loser", LeaseKind::shared);
  const AdoptedLibrary library = adopt(tenant);
  ASSERT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  ASSERT_EQ(call(library, "use"), CUDA_SUCCESS);
  const RawDriver raw(broker.driver().path);
  CUcontext const context = tenant.lease().context;
  std::thread([&] {
    const Entered entered(raw, context);
    controls.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(raw.call("cuCtxSynchronize"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    controls.stop_counting();
    EXPECT_EQ(raw.retain_primary(0), context) << "or this test shows nothing";
  }).join();
  EXPECT_EQ(state_of(tenant), LeaseState::ready) << "nobody has met it";
  EXPECT_EQ(call(library, "use"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(state_of(tenant), LeaseState::lost);
  raw.call("cuDevicePrimaryCtxRelease_v2", 0);
}

class BareLossOfAnyLeaseTest : public BareLossesTest,
                               public ::testing::WithParamInterface<LeaseKind> {};

constexpr LeaseKind all_kinds[] = {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green};

INSTANTIATE_TEST_SUITE_P(Kinds, BareLossOfAnyLeaseTest, ::testing::ValuesIn(all_kinds),
                         [](const auto& test) { return name_of(test.param); });

// Code makes the same handle current in every step. The gate must not take that for old news.
TEST_P(BareLossOfAnyLeaseTest, CallThatMadeTheLostLeaseCurrentMakesTheNextOneCurrent) {
  Tenant tenant = open("loser", GetParam());
  const AdoptedLibrary library = adopt(tenant);
  for (int time = 0; time < 2; ++time) ASSERT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  const std::uint64_t generation = tenant.lease().generation;
  broker.force_loss(tenant.id(), 0, "the test wants it");
  EXPECT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  EXPECT_EQ(state_of(tenant), LeaseState::ready) << "the call has made it";
  EXPECT_GT(tenant.lease().generation, generation);
}

// The host has the lease lost while the tenant's code runs.
TEST_P(BareLossOfAnyLeaseTest, TenantThatBeginsAnewInItsGuardGetsNoStrike) {
  Tenant tenant = open("loser", GetParam());
  const AdoptedLibrary library = adopt(tenant);
  const std::uint64_t generation = tenant.lease().generation;
  tenant.run(0, [&] {
    broker.force_loss(tenant.id(), 0, "the test wants it");
    EXPECT_EQ(call(library, "retain_again"), CUDA_SUCCESS);
  });
  EXPECT_GT(tenant.lease().generation, generation);
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(BareLossOfAnyLeaseTest, GuardedCallThatMeetsALostContextReportsIt) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device loses a context in a call";
  Tenant tenant = open("loser", GetParam()), neighbour = open("neighbour", LeaseKind::private_own);
  const AdoptedLibrary library = adopt(tenant);
  const std::uint64_t generation = tenant.lease().generation;
  ASSERT_EQ(call(library, "set_only"), CUDA_SUCCESS);
  // The library allocates memory: from a pool, or from the driver in a private lease.
  const bool is_own = GetParam() == LeaseKind::private_own;
  controls.fail_call(is_own ? "cuMemAlloc_v2" : "cuMemAllocFromPoolAsync", 1,
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(call(library, "use"), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  controls.stop_counting();
  EXPECT_EQ(state_of(tenant), LeaseState::lost);
  EXPECT_EQ(state_of(neighbour), LeaseState::ready);
  expect_told_once("loser", LossReason::destroyed);
  EXPECT_THAT(told["neighbour"], IsEmpty());
  EXPECT_EQ(call(library, "retain_again"), CUDA_SUCCESS);
  EXPECT_EQ(state_of(tenant), LeaseState::ready);
  EXPECT_GT(tenant.lease().generation, generation);
  EXPECT_EQ(call(library, "set_and_unset"), CUDA_SUCCESS);
}

// ---- faults, each in a process of its own ------------------------------------------------------

using FaultCase = std::tuple<LeaseKind, const char*>;

class BareFaultChildTest : public BareLossesTest,
                           public ::testing::WithParamInterface<FaultCase> {};
class BareFaultTest : public ::testing::TestWithParam<FaultCase> {};

const auto fault_cases =
    ::testing::Combine(::testing::ValuesIn(all_kinds), ::testing::Values("fault", "fault_unseen"));

std::string case_name(const ::testing::TestParamInfo<FaultCase>& test) {
  return name_of(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
}

INSTANTIATE_TEST_SUITE_P(Cases, BareFaultChildTest, fault_cases, case_name);
INSTANTIATE_TEST_SUITE_P(Cases, BareFaultTest, fault_cases, case_name);

TEST_P(BareFaultChildTest, DISABLED_FaultOfATenantIsKnown) {
  const auto [kind, function] = GetParam();
  Tenant tenant = open("faulty", kind), neighbour = open("neighbour", LeaseKind::private_own);
  const AdoptedLibrary library = adopt(tenant);
  std::thread([&, name = function] {
    EXPECT_EQ(call(library, "set_only"), CUDA_SUCCESS);
    EXPECT_EQ(call(library, name), CUDA_ERROR_ILLEGAL_ADDRESS);
  }).join();
  const bool is_seen = function == std::string("fault");
  const LeaseState before_poll = is_seen ? LeaseState::ended : LeaseState::ready;
  EXPECT_EQ(state_of(tenant), before_poll);
  EXPECT_EQ(state_of(neighbour), before_poll);
  expect_told_once("faulty", LossReason::fault);
  expect_told_once("neighbour", LossReason::fault);
  EXPECT_EQ(state_of(tenant), LeaseState::ended);
  EXPECT_EQ(state_of(neighbour), LeaseState::ended);
  std::size_t records = 0;
  for (const std::string& text : said()) records += text.rfind("fault: ", 0) == 0 ? 1 : 0;
  EXPECT_EQ(records, 1U);
}

TEST_P(BareFaultTest, FaultOfATenantIsKnown) {
  const ChildResult child =
      run_child("Cases/BareFaultChildTest.DISABLED_FaultOfATenantIsKnown/" +
                case_name(::testing::TestParamInfo<FaultCase>(GetParam(), 0)));
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

}  // namespace
}  // namespace ctxbroker
