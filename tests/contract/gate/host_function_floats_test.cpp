// SPDX-License-Identifier: Apache-2.0
// The driver calls functions of all tenants on a thread of its own. One of them changes how that
// thread computes: the next one does not see that.
#include <gmock/gmock.h>

#include <cfenv>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

void round_down(void*) {
  std::fesetround(FE_DOWNWARD);
}
void round_to_nearest(void*) {
  std::fesetround(FE_TONEAREST);
}
void store_rounding(void* rounding) {
  *static_cast<int*>(rounding) = std::fegetround();
}

class HostFunctionFloatsTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {};

TEST_P(HostFunctionFloatsTest, NextFunctionOnTheDriversThreadSeesNoChange) {
  Tenant tenant = open(broker, "rounds", GetParam());
  int through_gate = -1, past_gate = -1, beside = -1, after = -1;
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    const CUhostFn change = round_down, store = store_rounding;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1u), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuLaunchHostFunc", stream, change, static_cast<void*>(nullptr)),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuLaunchHostFunc", stream, store, static_cast<void*>(&through_gate)),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    ASSERT_EQ(raw.launch_host_function(stream, round_down, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(raw.launch_host_function(stream, store_rounding, &past_gate), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuLaunchHostFunc", stream, store, static_cast<void*>(&beside)),
              CUDA_SUCCESS);
    ASSERT_EQ(raw.launch_host_function(stream, store_rounding, &after), CUDA_SUCCESS);
    ASSERT_EQ(raw.launch_host_function(stream, round_to_nearest, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  });
  EXPECT_EQ(through_gate, FE_TONEAREST);
  EXPECT_EQ(past_gate, FE_DOWNWARD) << "the control";
  EXPECT_EQ(beside, FE_TONEAREST) << "whatever the thread has";
  EXPECT_EQ(after, FE_DOWNWARD) << "the thread's own is put back";
  EXPECT_EQ(tenant.strikes(), 1U);
  EXPECT_THAT(said(), Contains(HasSubstr("cuLaunchHostFunc: changed the thread's floating-point "
                                         "control: the rounding mode")));
}

INSTANTIATE_TEST_SUITE_P(Leases, HostFunctionFloatsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// A refusal is recorded in the plug-in's call, which rounds in its own way.
TEST(RecordFloatsTest, HostsSinkComputesAsTheHostDoes) {
  int seen = -1;
  BrokerOptions options;
  options.records = [&](const Record& record) {
    if (record.severity >= Severity::warning) seen = std::fegetround();
  };
  Broker broker = Broker::open(options);
  Tenant tenant = broker.open_tenant("rounds", {LeaseChoice(LeaseKind::shared)});
  tenant.run(0, [] {
    round_down(nullptr);
    EXPECT_NE(driver_call("cuMemFree_v2", CUdeviceptr{0x1234560}), CUDA_SUCCESS);
    EXPECT_EQ(std::fegetround(), FE_DOWNWARD) << "the plug-in's own is put back";
    round_to_nearest(nullptr);
  });
  EXPECT_EQ(seen, FE_TONEAREST);
}

}  // namespace
}  // namespace ctxbroker
