// SPDX-License-Identifier: Apache-2.0
// Answers that a tenant gets as a program of its own would, although its lease, or the gate, has
// another by nature.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

class AnswersAloneTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  Tenant open(const char* name) { return RulesTest::open(broker, name, GetParam()); }
  bool is_green() const { return GetParam() == LeaseKind::green; }
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, AnswersAloneTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_P(AnswersAloneTest, DefaultStreamHasTheFlagsOfAPrimarys) {
  Tenant tenant = open("flags");
  tenant.run(0, [&] {
    for (CUstream stream : {CUstream(nullptr), CU_STREAM_LEGACY}) {
      unsigned flags = ~0U, real = ~0U;
      EXPECT_EQ(driver_call("cuStreamGetFlags", stream, &flags), CUDA_SUCCESS);
      EXPECT_EQ(flags, unsigned(CU_STREAM_DEFAULT));
      EXPECT_EQ(raw.call("cuStreamGetFlags", stream, &real), CUDA_SUCCESS);
      EXPECT_EQ(real, unsigned(is_green() ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT))
          << "the driver's own answer, as a control";
    }
    CUstream own = nullptr;
    unsigned flags = ~0U;
    ASSERT_EQ(driver_call("cuStreamCreate", &own, unsigned(CU_STREAM_NON_BLOCKING)), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamGetFlags", own, &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", own), CUDA_SUCCESS);
  });
}

TEST_P(AnswersAloneTest, CaptureOfTheDefaultStreamIsRefusedAndLeavesNothing) {
  Tenant tenant = open("captures");
  tenant.run(0, [&] {
    for (CUstream stream : {CUstream(nullptr), CU_STREAM_LEGACY}) {
      EXPECT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    const CUresult control =
        raw.call("cuStreamBeginCapture_v2", CUstream(nullptr), CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(control, is_green() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        << "the driver's own answer";
    CUgraph graph = nullptr;
    if (control == CUDA_SUCCESS) raw.call("cuStreamEndCapture", CUstream(nullptr), &graph);
    if (graph != nullptr) raw.call("cuGraphDestroy", graph);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// Null is nobody's, so the driver answers for it, and it is no breach.
TEST_P(AnswersAloneTest, NullHandleIsAnsweredAsByTheDriver) {
  struct Call {
    const char* symbol;
    std::function<CUresult(void*)> make;
  };
  const auto ends = [](const char* symbol) {
    return Call{symbol, [=](void* found) {
                  return call_found(found, symbol, static_cast<void*>(nullptr));
                }};
  };
  const Call calls[] = {
      ends("cuCtxDestroy_v2"),
      ends("cuStreamDestroy_v2"),
      ends("cuEventDestroy_v2"),
      ends("cuModuleUnload"),
      ends("cuLibraryUnload"),
      ends("cuGraphDestroy"),
      ends("cuGraphExecDestroy"),
      ends("cuGraphDestroyNode"),
      ends("cuMemPoolDestroy"),
      ends("cuMemFree_v2"),
      ends("cuMemFreeHost"),
      ends("cuMemRelease"),
      ends("cuArrayDestroy"),
      ends("cuGreenCtxDestroy"),
      {"cuUserObjectRelease",
       [](void* found) { return call_found(found, "", CUuserObject(nullptr), 1U); }},
      {"cuUserObjectRetain",
       [](void* found) { return call_found(found, "", CUuserObject(nullptr), 1U); }},
      {"cuMemPoolTrimTo",
       [](void* found) { return call_found(found, "", CUmemoryPool(nullptr), std::size_t{0}); }},
      {"cuDeviceSetMemPool",
       [](void* found) { return call_found(found, "", CUdevice{0}, CUmemoryPool(nullptr)); }},
  };
  Tenant tenant = open("null");
  tenant.run(0, [&] {
    for (const Call& one : calls) {
      void* const real = raw.find(one.symbol);
      if (real == nullptr) continue;
      EXPECT_EQ(one.make(driver_look_up(one.symbol)), one.make(real)) << one.symbol;
    }
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// A handle that nobody has is a breach all the same.
TEST_P(AnswersAloneTest, StrangeHandleIsAStrike) {
  Tenant tenant = open("strange");
  tenant.run(0, [&] {
    int nothing = 0;
    EXPECT_NE(driver_call("cuMemPoolDestroy", static_cast<void*>(&nothing)), CUDA_SUCCESS);
    EXPECT_NE(driver_call("cuCtxDestroy_v2", static_cast<void*>(&nothing)), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 2U);
}

}  // namespace
}  // namespace ctxbroker
