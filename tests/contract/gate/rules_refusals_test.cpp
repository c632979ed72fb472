// SPDX-License-Identifier: Apache-2.0
// A call that the driver has refused has not happened: nothing is forgotten, and nothing is
// entered.
#include <gmock/gmock.h>

#include "host_functions/host_functions.hpp"
#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class RefusalsTest : public RulesTest {
 protected:
  ~RefusalsTest() override {
    if (controls) controls.stop_counting();
  }
  // The driver can be told to refuse. False: the test is skipped.
  bool can_refuse() const { return static_cast<bool>(controls); }
  // Makes the driver refuse the next call of that name, and expects that.
  template <typename... Arguments>
  void expect_refused(const char* symbol, Arguments... arguments) {
    controls.fail_call(symbol, 1, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call(symbol, arguments...), CUDA_ERROR_INVALID_VALUE) << symbol;
  }

  const SoftwareControls controls{broker.driver().path};
};
#define CTXB_SKIP_UNLESS_IT_REFUSES() \
  if (!can_refuse()) GTEST_SKIP() << "the driver cannot be told to refuse"

// ---- captures -----------------------------------------------------------------------------------

// While a thread has a capture, the driver refuses an allocation of the thread, and the capture
// becomes invalid, unless the neighbour's guard knows of it: see
// CaptureBesideTest.ControlWithoutTheRelaxedModeEndsTheCapture.
class RefusedEndOfCaptureTest : public RefusalsTest {
 protected:
  static CUstream begin_capture(bool per_thread = false) {
    CUstream stream = CU_STREAM_PER_THREAD;
    if (!per_thread) {
      check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    }
    check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return stream;
  }
  // A driver may have made it invalid with the refusal.
  bool is_whole(CUstream stream) const {
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return raw.call("cuStreamIsCapturing", stream, &capture) == CUDA_SUCCESS &&
           capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  static CUresult allocate(Tenant& tenant) {
    return tenant.run(0, [] {
      CUdeviceptr memory = 0;
      const CUresult status = driver_call("cuMemAlloc_v2", &memory, mib);
      if (status == CUDA_SUCCESS) check_driver_call("cuMemFree_v2", memory);
      return status;
    });
  }
  static void expect_ends_whole(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) check_driver_call("cuGraphDestroy", graph);
  }
  // The host captures in the primary context, and then makes a call that the driver refuses.
  template <typename Refused>
  void expect_host_keeps_capture(bool per_thread, Refused&& refused) {
    Tenant neighbour = open(broker, "neighbour", LeaseKind::private_own);
    EXPECT_EQ(allocate(neighbour), CUDA_SUCCESS);
    CUcontext primary = nullptr;
    check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
    check_driver_call("cuCtxPushCurrent_v2", primary);
    CUstream const stream = begin_capture(per_thread);
    EXPECT_NE(refused(primary, stream), CUDA_SUCCESS);
    if (is_whole(stream)) {
      EXPECT_EQ(allocate(neighbour), CUDA_SUCCESS);
      expect_ends_whole(stream);
    } else {
      EXPECT_FALSE(can_refuse()) << "the software device leaves the capture alone";
      CUgraph graph = nullptr;
      driver_call("cuStreamEndCapture", stream, &graph);
    }
    if (!per_thread) check_driver_call("cuStreamDestroy_v2", stream);
    check_driver_call("cuCtxPopCurrent_v2", &primary);
    check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
    EXPECT_EQ(neighbour.strikes(), 0U);
  }
};

TEST_F(RefusedEndOfCaptureTest, CaptureOfTheHostStaysOpenWhenItsContextStays) {
  expect_host_keeps_capture(
      false, [](CUcontext primary, CUstream) { return driver_call("cuCtxDestroy_v2", primary); });
}

TEST_F(RefusedEndOfCaptureTest, CaptureOfTheHostStaysOpenWhenItsPerThreadStreamStays) {
  expect_host_keeps_capture(
      true, [](CUcontext, CUstream stream) { return driver_call("cuStreamDestroy_v2", stream); });
}

TEST_F(RefusedEndOfCaptureTest, CaptureOfTheHostStaysOpenWhenItsStreamStays) {
  CTXB_SKIP_UNLESS_IT_REFUSES();
  expect_host_keeps_capture(false, [&](CUcontext, CUstream stream) {
    expect_refused("cuStreamDestroy_v2", stream);
    return CUDA_ERROR_INVALID_VALUE;
  });
}

// The driver takes away one use of the context.
TEST_F(RefusedEndOfCaptureTest, CaptureOfTheHostStaysOpenWhenItsContextIsDetachedOnce) {
  Tenant neighbour = open(broker, "neighbour", LeaseKind::private_own);
  const auto mode_in_guard = [&] {
    return neighbour.run(0, [] {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      check_driver_call("cuThreadExchangeStreamCaptureMode", &mode);
      CUstreamCaptureMode back = mode;
      check_driver_call("cuThreadExchangeStreamCaptureMode", &back);
      return mode;
    });
  };
  CUcontext own = nullptr, attached = nullptr;
  check_driver_call("cuCtxCreate_v2", &own, 0U, CUdevice{0});
  check_driver_call("cuCtxAttach", &attached, 0U);
  CUstream const stream = begin_capture();
  EXPECT_EQ(driver_call("cuCtxDetach", own), CUDA_SUCCESS);
  if (is_whole(stream)) {
    EXPECT_EQ(mode_in_guard(), CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  EXPECT_EQ(driver_call("cuCtxDetach", own), CUDA_SUCCESS);
  EXPECT_EQ(mode_in_guard(), CU_STREAM_CAPTURE_MODE_GLOBAL) << "it has ended with its context";
  EXPECT_EQ(current(), nullptr);
}

// What is left open ends with its guard, as before.
TEST_F(RefusedEndOfCaptureTest, CaptureOfATenantStaysOpenWhenItsContextOrStreamStays) {
  CTXB_SKIP_UNLESS_IT_REFUSES();
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  Tenant neighbour = open(broker, "neighbour", LeaseKind::private_own);
  EXPECT_EQ(allocate(neighbour), CUDA_SUCCESS);
  for (const bool leaves : {false, true}) {
    tenant.run(0, [&] {
      CUcontext own = nullptr;
      check_driver_call("cuCtxCreate_v2", &own, 0U, CUdevice{0});
      CUstream const stream = begin_capture();
      expect_refused("cuCtxDestroy_v2", own);
      EXPECT_EQ(allocate(neighbour), CUDA_SUCCESS);
      expect_refused("cuStreamDestroy_v2", stream);
      EXPECT_EQ(allocate(neighbour), CUDA_SUCCESS);
      EXPECT_EQ(held(tenant, "stream").count, 1U);
      EXPECT_EQ(held(tenant, "context").count, 1U);
      if (leaves) return;
      expect_ends_whole(stream);
      EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
      EXPECT_EQ(driver_call("cuCtxDestroy_v2", own), CUDA_SUCCESS);
    });
    EXPECT_EQ(tenant.strikes() != 0, leaves);
  }
  EXPECT_THAT(said(), Contains(HasSubstr("left the capture of a stream open; it was ended")));
}

// ---- failed work --------------------------------------------------------------------------------

TEST_F(RefusalsTest, FailureInAStreamIsToldAfterARefusedDestroy) {
  CTXB_SKIP_UNLESS_IT_REFUSES();
  Tenant tenant = open(broker, "careless", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("host_functions"));
  const auto fails = reinterpret_cast<CUhostFn>(library.symbol("ctxb_test_throw"));
  HostFunctionData data;
  void* const given = &data;
  tenant.run(0, [&] {
    CUcontext own = nullptr;
    CUstream streams[2] = {};  // in the lease, and in a context of the tenant's own
    const auto let_fail = [&](CUstream stream) {
      check_driver_call("cuLaunchHostFunc", stream, fails, given);
      raw.check_call("cuStreamSynchronize", stream);  // so it is told to nobody
    };
    check_driver_call("cuStreamCreate", &streams[0], 1U);
    let_fail(streams[0]);
    expect_refused("cuStreamDestroy_v2", streams[0]);
    EXPECT_EQ(driver_call("cuStreamSynchronize", streams[0]), CUDA_ERROR_UNKNOWN);
    check_driver_call("cuCtxCreate_v2", &own, 0U, CUdevice{0});
    check_driver_call("cuStreamCreate", &streams[1], 1U);
    let_fail(streams[1]);
    expect_refused("cuCtxDestroy_v2", own);
    EXPECT_EQ(driver_call("cuStreamSynchronize", streams[1]), CUDA_ERROR_UNKNOWN);
    // What has failed in a stream that has ended is told to nobody.
    let_fail(streams[1]);
    EXPECT_EQ(driver_call("cuCtxDestroy_v2", own), CUDA_SUCCESS);
    let_fail(streams[0]);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
  });
}

// ---- what a tenant has learned ------------------------------------------------------------------

// A program that has the process to itself finds the primary inactive then.
TEST_F(RefusalsTest, PrimaryStaysInactiveWhenTheDriverDoesNotMakeItCurrent) {
  CTXB_SKIP_UNLESS_IT_REFUSES();
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    Tenant tenant = open(broker, "asks", kind);
    tenant.run(0, [&] {
      const auto is_active = [] {
        unsigned flags = 0;
        int active = -1;
        check_driver_call("cuDevicePrimaryCtxGetState", CUdevice{0}, &flags, &active);
        return active;
      };
      CUcontext primary = nullptr, popped = nullptr;
      check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
      check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
      expect_refused("cuCtxPushCurrent_v2", primary);
      EXPECT_EQ(is_active(), 0);
      EXPECT_EQ(driver_call("cuCtxPushCurrent_v2", primary), CUDA_SUCCESS);
      EXPECT_EQ(is_active(), 1);
      check_driver_call("cuCtxPopCurrent_v2", &popped);
    });
  }
}

}  // namespace
}  // namespace ctxbroker
