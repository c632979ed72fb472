// SPDX-License-Identifier: Apache-2.0
// Captures of streams that a tenant's code begins and leaves open.
#include <gmock/gmock.h>

#include <thread>

#include "attacks/attacks.h"
#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char ended[] = "left the capture of a stream open; it was ended";

class CapturesTest : public RulesTest {
 protected:
  // In the legacy stream of the context that all shared leases have.
  static CUresult work_in_legacy_stream(Tenant& tenant) {
    return tenant.run(0, [] {
      CUdeviceptr memory = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
      const CUresult status = driver_call("cuMemsetD8Async", memory, static_cast<unsigned char>(1),
                                          mib, CUstream{nullptr});
      EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
      return status;
    });
  }
  static int leave_capture(AdoptedLibrary& library, const char* how) {
    const AttackTarget nothing{};
    return reinterpret_cast<attack_function*>(library.symbol(how))("leave_capture", &nothing);
  }
};

TEST_F(CapturesTest, CaptureBegunInAGuardEndsWithTheGuard) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  tenant.run(0, [&] { EXPECT_EQ(leave_capture(library, ATTACK), CUDA_SUCCESS); });
  EXPECT_THAT(said(), Contains(HasSubstr(ended)));
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
}

// NVIDIA's driver crashes when the capture of a stream that is gone is ended.
TEST_F(CapturesTest, CaptureThatEndedOnAnotherThreadIsNotEndedAgain) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
    std::thread([&] {
      tenant.run(0, [&] {
        CUgraph graph = nullptr;
        EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
        EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
      });
    }).join();
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  });
  EXPECT_THAT(said(), Not(Contains(HasSubstr(ended))));
}

// The code, and its stream, stay in the process.
TEST_F(CapturesTest, CaptureBegunOutsideOfGuardsEndsWithItsTenant) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  ASSERT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
  EXPECT_EQ(leave_capture(library, ATTACK_ON_OWN_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
      << "no longer so? The pages say that a capture harms the neighbours until it ends";
  EXPECT_THAT(said(), Not(Contains(HasSubstr(ended))));
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr(ended)));
  EXPECT_EQ(work_in_legacy_stream(neighbour), CUDA_SUCCESS);
}

// A node may be told of by several calls, and is the graph's holder's in each case.
TEST_F(CapturesTest, NodesOfAnOwnCaptureCanBeChanged) {
  Tenant tenant = open(broker, "captures", LeaseKind::green);
  tenant.run(0, [&] {
    CUstream streams[2] = {};
    CUevent event = nullptr;
    CUdeviceptr memory = 0;
    for (CUstream& stream : streams) driver_call("cuStreamCreate", &stream, 1U);
    driver_call("cuEventCreate", &event, 0U);
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
    const auto set = [&](CUstream stream) {
      return driver_call("cuMemsetD8Async", memory, static_cast<unsigned char>(1), mib, stream);
    };
    ASSERT_EQ(driver_call("cuStreamBeginCapture_v2", streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    EXPECT_EQ(set(streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventRecord", event, streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamWaitEvent", streams[1], event, 0U), CUDA_SUCCESS);
    EXPECT_EQ(set(streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventRecord", event, streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamWaitEvent", streams[0], event, 0U), CUDA_SUCCESS);
    CUstreamCaptureStatus status{};
    cuuint64_t id = 0;
    CUgraph graph = nullptr, ended_graph = nullptr;
    const CUgraphNode* last = nullptr;
    CUgraphNode more = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(
        driver_call("cuStreamGetCaptureInfo_v2", streams[0], &status, &id, &graph, &last, &count),
        CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphAddEmptyNode", &more, graph, last, count), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamUpdateCaptureDependencies", streams[0], &more, std::size_t{1},
                          unsigned(CU_STREAM_SET_CAPTURE_DEPENDENCIES)),
              CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamEndCapture", streams[0], &ended_graph), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroyNode", more), CUDA_SUCCESS) << "of the capture";
    CUgraphNode nodes[4] = {};
    count = 4;
    EXPECT_EQ(driver_call("cuGraphGetNodes", ended_graph, &nodes[0], &count), CUDA_SUCCESS);
    ASSERT_EQ(count, 2U);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(driver_call("cuGraphDestroyNode", nodes[i]), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", ended_graph), CUDA_SUCCESS);
  });
  EXPECT_EQ(metrics_of(tenant).strikes, 0U);
}

}  // namespace
}  // namespace ctxbroker
