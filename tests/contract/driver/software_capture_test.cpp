// SPDX-License-Identifier: Apache-2.0
// What the software device promises about captures, graphs and their owners' ends.
#include <functional>
#include <thread>
#include <vector>

#include "driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker::test {
namespace {

class SoftwareCapture : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  }
  CUgraphExec captured(const char* kernel) const {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel, stream, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
    return exec;
  }
  // An unsafe call, which a global capture of this thread refuses.
  CUresult unsafe() const {
    CUdeviceptr address = 0;
    CUresult status = d.cuMemAlloc_v2(&address, 4);
    return status == CUDA_SUCCESS ? d.cuMemFree_v2(address) : status;
  }

  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
};

TEST_F(SoftwareCapture, UnsupportedCallsSpoilACapture) {
  CUgraphExec exec = captured("empty");
  const struct {
    const char* what;
    std::function<CUresult()> call;
    CUresult status;
  } rows[] = {
      {"a graph in a graph", [&] { return d.cuGraphLaunch(exec, stream); },
       CUDA_ERROR_NOT_SUPPORTED},
      {"a callback",
       [&] {
         return d.cuStreamAddCallback(
             stream, [](CUstream, CUresult, void*) {}, nullptr, 0);
       },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
  };
  for (const auto& row : rows) {
    ASSERT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(row.call(), row.status) << row.what;
    EXPECT_EQ(row.call(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << row.what << ", again";
    CUgraph graph = nullptr;
    EXPECT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// An open capture ends with its stream, its context and the driver's life, and is in nobody's way
// from then on.
TEST_F(SoftwareCapture, OpenCaptureEndsWithItsStreamOrContext) {
  ASSERT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(unsafe(), CUDA_SUCCESS);
  CUcontext own = nullptr;
  CUstream of_own = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&of_own, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamBeginCapture_v2(of_own, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(unsafe(), CUDA_SUCCESS);
}

TEST_F(SoftwareCapture, OutlivesAStreamThatJoinedIt) {
  CUstream other = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  std::size_t nodes = 0;
  ASSERT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(memory, 1, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(event, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 1u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(SoftwareCapture, StaleHandlesOfGraphsAreAnError) {
  CUgraph graph = nullptr, same = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = captured("empty");
  CUgraphNodeType type{};
  CUuserObject object = nullptr;
  ASSERT_EQ(d.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGraphAddEmptyNode(&node, graph, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphClone(&same, graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphNodeGetType(node, &type), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  auto destroy = [](void*) {};
  ASSERT_EQ(d.cuUserObjectCreate(&object, nullptr, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuUserObjectRelease(object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SoftwareCapture, AGraphOfAnUnloadedModuleIsAnError) {
  CUgraphExec exec = captured("empty");
  EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// Nothing of this is shared by the threads but the driver itself: for the race detectors.
TEST_F(SoftwareCapture, CapturesOfManyThreadsRunAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      CUstream own = nullptr;
      EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      EXPECT_EQ(d.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      for (int round = 0; round < 20; ++round) {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUdeviceptr address = 0;
        CUlibrary library = nullptr;
        CUkernel empty = nullptr;
        unsigned value = 0;
        EXPECT_EQ(d.cuMemAllocAsync(&address, 4, own), CUDA_SUCCESS);
        EXPECT_EQ(d.cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        EXPECT_EQ(d.cuMemsetD32Async(address, 7, 1, own), CUDA_SUCCESS);
        EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&value, address, 4, own), CUDA_SUCCESS);
        EXPECT_EQ(d.cuStreamEndCapture(own, &graph), CUDA_SUCCESS);
        EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
        EXPECT_EQ(d.cuGraphLaunch(exec, own), CUDA_SUCCESS);
        EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
        EXPECT_EQ(d.cuMemFreeAsync(address, own), CUDA_SUCCESS);
        EXPECT_EQ(
            d.cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
        EXPECT_EQ(d.cuLibraryGetKernel(&empty, library, "empty"), CUDA_SUCCESS);
        EXPECT_EQ(d.cuLaunchKernel(reinterpret_cast<CUfunction>(empty), 1, 1, 1, 1, 1, 1, 0, own,
                                   nullptr, nullptr),
                  CUDA_SUCCESS);
        EXPECT_EQ(d.cuStreamSynchronize(own), CUDA_SUCCESS);
        EXPECT_EQ(value, 7u);
        EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
        EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
      }
      EXPECT_EQ(d.cuStreamDestroy_v2(own), CUDA_SUCCESS);
    });
  for (std::thread& thread : threads) thread.join();
}

// Captured work faults when it is launched, for the whole process as any other does; a new life of
// the driver knows neither the fault nor the capture that was open.
TEST(SoftwareCaptures, CapturedFaultEndsTheProcessAndRestartForgetsIt) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    const Driver& d = driver();
    CUcontext primary = nullptr;
    CUmodule module = nullptr;
    CUfunction crash = nullptr;
    CUstream stream = nullptr, open = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&crash, module, "crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamCreate(&open, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchKernel(crash, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS) << "nothing has crashed yet";
    EXPECT_EQ(d.cuStreamBeginCapture_v2(open, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuStreamEndCapture(open, &graph), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(SoftwareControls(driver().path).restart(), 0);
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace ctxbroker::test
