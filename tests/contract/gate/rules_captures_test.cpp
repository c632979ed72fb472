// SPDX-License-Identifier: Apache-2.0
// Captures of streams that a tenant's code begins and leaves open.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "attacks/attacks.h"
#include "ctxbroker/graph.hpp"
#include "rules_fixture.hpp"
#include "support/kernels.hpp"
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

// The driver refuses to end a capture with a stream that was not joined, and has ended it.
CUresult end_without_join() {
  CUstream stream = nullptr, forked = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
  check_driver_call("cuStreamCreate", &forked, unsigned{CU_STREAM_NON_BLOCKING});
  check_driver_call("cuEventCreate", &event, unsigned{CU_EVENT_DISABLE_TIMING});
  check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  check_driver_call("cuEventRecord", event, stream);
  check_driver_call("cuStreamWaitEvent", forked, event, 0U);
  check_driver_call("cuLaunchHostFunc", forked, CUhostFn{[](void*) {}},
                    static_cast<void*>(nullptr));
  return driver_call("cuStreamEndCapture", stream, &graph);
}

TEST_F(CapturesTest, CaptureThatWasNotJoinedIsNotLeftOpen) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  tenant.run(0, [] { EXPECT_EQ(end_without_join(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED); });
  EXPECT_THAT(said(), Not(Contains(HasSubstr(ended))));
}

TEST_F(CapturesTest, CaptureThatAnotherThreadEndsIsNotLeftOpen) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    std::thread([&] {
      tenant.run(0, [&] {
        CUgraph graph = nullptr;
        EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph),
                  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
      });
    }).join();
  });
  EXPECT_THAT(said(), Not(Contains(HasSubstr(ended))));
}

CUcontext begin_in_own_context(bool per_thread) {
  CUcontext own = nullptr;
  CUstream stream = CU_STREAM_PER_THREAD;
  check_driver_call("cuCtxCreate_v2", &own, 0U, CUdevice{0});
  if (!per_thread) {
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
  }
  check_driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return own;
}

// The guard would call the driver with a stream that is gone.
TEST_F(CapturesTest, CaptureInAContextThatIsDestroyedIsNotLeftOpen) {
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  for (const bool per_thread : {false, true}) {
    tenant.run(0, [&] {
      EXPECT_EQ(driver_call("cuCtxDestroy_v2", begin_in_own_context(per_thread)), CUDA_SUCCESS);
    });
  }
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

TEST_F(CapturesTest, NodesOfAGraphThatTheDriverDidNotDestroyCanBeChanged) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "the driver cannot be told to refuse";
  Tenant tenant = open(broker, "captures", LeaseKind::shared);
  tenant.run(0, [&] {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    check_driver_call("cuGraphCreate", &graph, 0U);
    check_driver_call("cuGraphAddEmptyNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                      std::size_t{0});
    controls.fail_call("cuGraphDestroy", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(driver_call("cuGraphDestroyNode", node), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
  });
}

// ---- a capture that is open on the thread, or on another one ------------------------------------

using BesideCell =
    std::tuple<LeaseKind, LeaseKind, CUstreamCaptureMode>;  // of the outer, of the inner

std::string mode_name(CUstreamCaptureMode mode) {
  const char* const names[] = {"global", "thread_local", "relaxed"};
  return names[mode];
}

class CaptureBesideTest : public CapturesTest, public ::testing::WithParamInterface<BesideCell> {
 protected:
  static CUstreamCaptureMode mode() { return std::get<2>(GetParam()); }
  Tenant open_outer() { return open(broker, "captures", std::get<0>(GetParam())); }
  Tenant open_inner() { return open(broker, "neighbour", std::get<1>(GetParam())); }

  // Begins a capture in a new stream, calls `inside`, and ends it. The capture has to be whole.
  template <typename Inside>
  static void capture_around(Inside&& inside) {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUdeviceptr memory = 0;
    check_driver_call("cuMemAlloc_v2", &memory, mib);
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    check_driver_call("cuStreamBeginCapture_v2", stream, mode());
    inside();
    EXPECT_EQ(driver_call("cuMemsetD8Async", memory, static_cast<unsigned char>(1), mib, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) check_driver_call("cuGraphDestroy", graph);
    check_driver_call("cuStreamDestroy_v2", stream);
    check_driver_call("cuMemFree_v2", memory);
  }
  // Makes the calls that the driver refuses to a thread that captures.
  static void make_unsafe_calls() {
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    CUmodule module = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostAlloc", &pinned, mib, 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFreeHost", pinned), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuModuleLoadData", &module, static_cast<const void*>(empty_ptx)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuModuleUnload", module), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventCreate", &event, 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventRecord", event, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventQuery", event), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventDestroy_v2", event), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  }
  CUstreamCaptureMode mode_of_thread() const {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    raw.check_call("cuThreadExchangeStreamCaptureMode", &mode);
    CUstreamCaptureMode changed = mode;
    raw.check_call("cuThreadExchangeStreamCaptureMode", &changed);
    return mode;
  }
};

TEST_P(CaptureBesideTest, NeighboursGuardInsideLeavesTheCaptureValid) {
  Tenant outer = open_outer(), inner = open_inner();
  outer.run(0, [&] {
    // Its lease is made inside the first capture, and is there in the second.
    for (int time = 0; time < 2; ++time) {
      capture_around([&] {
        inner.run(0, [&] { make_unsafe_calls(); });
        EXPECT_EQ(mode_of_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL) << "it is put back";
      });
    }
  });
  outer.run(0, [&] { EXPECT_EQ(mode_of_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL); });
  EXPECT_EQ(outer.strikes() + inner.strikes(), 0U);
}

TEST_P(CaptureBesideTest, NeighbourOnAnotherThreadLeavesTheCaptureValid) {
  Tenant outer = open_outer(), inner = open_inner();
  outer.run(0, [&] {
    capture_around(
        [&] { std::thread([&] { inner.run(0, [&] { make_unsafe_calls(); }); }).join(); });
  });
  EXPECT_EQ(outer.strikes() + inner.strikes(), 0U);
}

// On its own thread, and on another one. The host's calls on the thread go on being refused.
TEST_P(CaptureBesideTest, GuardInsideTheHostsCaptureLeavesItValid) {
  Tenant inner = open_inner();
  inner.run(0, [] {});
  CUcontext primary = nullptr;
  check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
  check_driver_call("cuCtxPushCurrent_v2", primary);
  for (int time = 0; time < 2; ++time) {
    capture_around([&] {
      inner.run(0, [&] { make_unsafe_calls(); });
      std::thread([&] { inner.run(0, [&] { make_unsafe_calls(); }); }).join();
    });
    inner.run(0, [&] { EXPECT_EQ(mode_of_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL); });
  }
  check_driver_call("cuCtxPopCurrent_v2", &primary);
  check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
  EXPECT_EQ(inner.strikes(), 0U);
}

// The driver ended it with the refusal, or with its context.
TEST_P(CaptureBesideTest, GuardAfterTheHostsEndedCaptureHasTheUsualMode) {
  Tenant inner = open_inner();
  inner.run(0, [] {});
  const auto mode_in_guard = [&] { return inner.run(0, [&] { return mode_of_thread(); }); };
  CUcontext own = nullptr;
  check_driver_call("cuCtxCreate_v2", &own, 0U, CUdevice{0});
  EXPECT_EQ(end_without_join(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(mode_in_guard(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  check_driver_call("cuCtxDestroy_v2", own);
  own = begin_in_own_context(false);
  EXPECT_EQ(mode_in_guard(), CU_STREAM_CAPTURE_MODE_RELAXED);
  check_driver_call("cuCtxDestroy_v2", own);
  EXPECT_EQ(mode_in_guard(), CU_STREAM_CAPTURE_MODE_GLOBAL);
}

// The graph waits for its jobs, and asks about them, outside of guards.
TEST_P(CaptureBesideTest, GraphsJobsInsideTheHostsCaptureLeaveItValid) {
  constexpr ActivationSizes sizes{16, 16, 0, false};
  const PluginLibrary library = broker.load(test_library("behaviours"));
  PluginInstance instance =
      broker.create(library, "affine", {Placement(0), LeaseChoice(std::get<1>(GetParam())), 0});
  instance.activate(sizes);
  std::vector<float> input(std::size_t{16} * 16 * 4, 1.0F), output(input.size());
  JobInfo job;
  job.width = job.height = 16;
  const JobBuffers buffers{{input.data()}, {output.data()}};
  GraphOptions options;
  options.jobs_in_flight = 2;
  CUcontext primary = nullptr;
  check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
  check_driver_call("cuCtxPushCurrent_v2", primary);
  capture_around([&] {
    Graph graph(broker, {&instance}, sizes, options);
    EXPECT_NO_THROW(graph.process(input.data(), output.data(), job));
    EXPECT_NO_THROW({
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t id = graph.submit(buffers, job);
        static_cast<void>(graph.is_done(id));
        if (i == 1) graph.finish(id);
      }
    });
  });
  check_driver_call("cuCtxPopCurrent_v2", &primary);
  check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
  EXPECT_EQ(instance.metrics().strikes, 0U);
}

// The mode that the guard had before, past the gate.
TEST_P(CaptureBesideTest, ControlWithoutTheRelaxedModeEndsTheCapture) {
  if (mode() == CU_STREAM_CAPTURE_MODE_RELAXED) GTEST_SKIP() << "it refuses nothing";
  Tenant outer = open_outer(), inner = open_inner();
  inner.run(0, [] {});
  outer.run(0, [&] {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    check_driver_call("cuStreamBeginCapture_v2", stream, mode());
    inner.run(0, [&] {
      CUstreamCaptureMode changed = CU_STREAM_CAPTURE_MODE_GLOBAL;
      raw.check_call("cuThreadExchangeStreamCaptureMode", &changed);
      CUdeviceptr memory = 0;
      EXPECT_EQ(raw.call("cuMemAlloc_v2", &memory, mib), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      raw.check_call("cuThreadExchangeStreamCaptureMode", &changed);
    });
    EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    check_driver_call("cuStreamDestroy_v2", stream);
  });
  EXPECT_EQ(raw.current(), nullptr);
}

// The host asks what a graph asks about its jobs, in the mode that the thread has.
TEST_P(CaptureBesideTest, ControlQueryWithoutTheRelaxedModeEndsTheHostsCapture) {
  if (mode() == CU_STREAM_CAPTURE_MODE_RELAXED) GTEST_SKIP() << "it refuses nothing";
  CUcontext primary = nullptr;
  check_driver_call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0});
  check_driver_call("cuCtxPushCurrent_v2", primary);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  check_driver_call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
  check_driver_call("cuEventCreate", &event, unsigned{CU_EVENT_DEFAULT});
  check_driver_call("cuStreamBeginCapture_v2", stream, mode());
  EXPECT_EQ(raw.call("cuEventQuery", event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  check_driver_call("cuEventDestroy_v2", event);
  check_driver_call("cuStreamDestroy_v2", stream);
  check_driver_call("cuCtxPopCurrent_v2", &primary);
  check_driver_call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
}

std::string beside_name(const ::testing::TestParamInfo<BesideCell>& info) {
  const auto [outer, inner, mode] = info.param;
  return std::string(to_string(outer)) + "_" + to_string(inner) + "_" + mode_name(mode);
}

const auto all_kinds =
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green);
INSTANTIATE_TEST_SUITE_P(Cells, CaptureBesideTest,
                         ::testing::Combine(all_kinds, all_kinds,
                                            ::testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                              CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                              CU_STREAM_CAPTURE_MODE_RELAXED)),
                         beside_name);

}  // namespace
}  // namespace ctxbroker
