// SPDX-License-Identifier: Apache-2.0
// Stream capture: what becomes of work, and what is refused meanwhile, to whom.
#include <functional>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

constexpr auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto thread_local_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

class CaptureTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemsetD32_v2(memory, 0, 1024), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void begin(CUstreamCaptureMode mode = relaxed) const {
    ASSERT_EQ(d.cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
  }
  // Ends what cannot be used; what the end itself says.
  CUresult end() const {
    CUgraph graph = nullptr;
    CUresult status = d.cuStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, status == CUDA_SUCCESS);
    if (graph != nullptr) {
      EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
    }
    return status;
  }
  CUstreamCaptureStatus status_of(CUstream of) const {
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(d.cuStreamIsCapturing(of, &status), CUDA_SUCCESS);
    return status;
  }
  void launch_once(CUgraph graph) const {
    CUgraphExec exec = nullptr;
    ASSERT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }
  unsigned value(std::size_t index = 0) const {
    unsigned read = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&read, memory + index * 4, sizeof read), CUDA_SUCCESS);
    return read;
  }

  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
};

TEST_F(CaptureTest, WorkIsKeptAndDoneAtEachLaunch) {
  begin();
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  unsigned count = 1024;
  void* arguments[] = {&memory, &count};
  EXPECT_EQ(d.cuMemsetD32Async(memory, 5, count, stream), CUDA_SUCCESS);
  EXPECT_EQ(launch("add_one", stream, arguments, 8, 128), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(value(1023), 0u) << "nothing was done yet";
  std::size_t nodes = 0;
  EXPECT_EQ(d.cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 2u);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS) << "what was made of it goes on";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(d.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 6u);
  EXPECT_EQ(value(1023), 6u);
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(CaptureTest, CopiesReadTheirSourceAtTheLaunch) {
  unsigned sent = 1, received = 0;
  begin();
  EXPECT_EQ(d.cuMemcpyHtoDAsync_v2(memory, &sent, sizeof sent, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&received, memory, sizeof received, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  sent = 2;
  launch_once(graph);
  EXPECT_EQ(received, 2u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, EventCarriesACaptureToOtherStreamsAndBack) {
  CUstream other = nullptr;
  CUevent fork = nullptr, joined = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(d.cuMemsetD32Async(memory, 1, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(d.cuMemsetD32Async(memory, 2, 2, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(joined, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(stream, joined, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(memory, 3, 1, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
  launch_once(graph);
  EXPECT_EQ(value(0), 3u);
  EXPECT_EQ(value(1), 2u);
  EXPECT_EQ(value(2), 1u);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, QueryOfACapturedEventSpoilsTheCapture) {
  CUstream other = nullptr;
  CUevent fork = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(d.cuMemsetD32Async(memory, 1, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(d.cuStreamWaitEvent(other, fork, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
  CUgraph graph = nullptr;
  EXPECT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, UnjoinedForkSpoilsTheCapture) {
  CUstream other = nullptr;
  CUevent fork = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(d.cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(memory, 2, 2, other), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
}

// Waiting for what is only written down, and dependencies from outside.
TEST_F(CaptureTest, ConflictingCallsSpoilTheCapture) {
  CUevent before = nullptr;
  CUstream blocking = nullptr;
  ASSERT_EQ(d.cuEventCreate(&before, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  const struct {
    const char* what;
    CUstream in;
    std::function<CUresult()> call;
    CUresult status;
  } rows[] = {
      {"synchronise", stream, [&] { return d.cuStreamSynchronize(stream); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"query", stream, [&] { return d.cuStreamQuery(stream); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"context", stream, [&] { return d.cuCtxSynchronize(); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
      {"legacy stream", blocking, [&] { return d.cuMemsetD32Async(memory, 1, 1, nullptr); },
       CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
      {"synchronous copy", blocking,
       [&] {
         unsigned read = 0;
         return d.cuMemcpyDtoH_v2(&read, memory, sizeof read);
       },
       CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
  };
  for (const auto& row : rows) {
    ASSERT_EQ(d.cuStreamBeginCapture_v2(row.in, relaxed), CUDA_SUCCESS) << row.what;
    EXPECT_EQ(d.cuMemsetD32Async(memory, 9, 1, row.in), CUDA_SUCCESS) << row.what;
    EXPECT_EQ(row.call(), row.status) << row.what;
    CUgraph graph = nullptr;
    EXPECT_EQ(d.cuStreamEndCapture(row.in, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        << row.what;
    EXPECT_EQ(graph, nullptr) << row.what;
  }
  EXPECT_EQ(value(), 0u) << "nothing was done";
}

TEST_F(CaptureTest, BeginAndEndOfACaptureCheckStreamModeAndThread) {
  EXPECT_EQ(d.cuStreamBeginCapture_v2(nullptr, relaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(d.cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(9)),
            CUDA_ERROR_INVALID_VALUE);
  CUgraph none = nullptr;
  EXPECT_EQ(d.cuStreamEndCapture(stream, &none), CUDA_ERROR_ILLEGAL_STATE);
  begin(thread_local_mode);
  EXPECT_EQ(d.cuStreamBeginCapture_v2(stream, relaxed), CUDA_ERROR_ILLEGAL_STATE);
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] {
    CUgraph graph = nullptr;
    d.cuCtxSetCurrent(primary);
    elsewhere = d.cuStreamEndCapture(stream, &graph);
  }).join();
  EXPECT_EQ(elsewhere, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE) << "and it is ended all the same";
  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(CaptureTest, CaptureInfoTellsTheDependenciesOfTheNextNode) {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  std::size_t count = 9;
  begin();
  EXPECT_EQ(d.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &after, &count),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(d.cuMemsetD32Async(memory, 9, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &after, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type{};
  EXPECT_EQ(d.cuGraphNodeGetType(after[0], &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

// A call that is unsafe beside a capture, made by one thread while another captures: by the modes
// of both. The third column: and by the thread itself that captures.
TEST_F(CaptureTest, UnsafeCallsAreRefusedByTheModesOfBothThreads) {
  const struct {
    CUstreamCaptureMode capture, thread;
    bool other_refused, own_refused;
  } rows[] = {
      {global, global, true, true},
      {global, thread_local_mode, false, true},
      {global, relaxed, false, false},
      {thread_local_mode, global, false, true},
      {thread_local_mode, thread_local_mode, false, true},
      {thread_local_mode, relaxed, false, false},
      {relaxed, global, false, false},
      {relaxed, thread_local_mode, false, false},
      {relaxed, relaxed, false, false},
  };
  for (const auto& row : rows)
    for (bool own : {false, true}) {
      SCOPED_TRACE(testing::Message() << "capture " << row.capture << ", thread " << row.thread
                                      << (own ? ", its own" : ", another"));
      begin(row.capture);
      CUresult status = CUDA_ERROR_UNKNOWN;
      CUdeviceptr address = 0;
      auto call = [&] {
        CUstreamCaptureMode mode = row.thread;
        EXPECT_EQ(d.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
        EXPECT_EQ(mode, global) << "as every thread begins";
        status = d.cuMemAlloc_v2(&address, 64);
        EXPECT_EQ(d.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
        EXPECT_EQ(mode, row.thread);
      };
      if (own)
        call();
      else
        std::thread([&] {
          EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
          call();
        }).join();
      bool refused = own ? row.own_refused : row.other_refused;
      EXPECT_EQ(status, refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      EXPECT_EQ(end(), refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
      if (!refused) {
        EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
      }
    }
}

// The same for each of the unsafe calls, and the control: without a capture they are not refused.
TEST_F(CaptureTest, UnsafeCallsAreRefusedOnlyDuringACapture) {
  static unsigned char page[4096];
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  void* pointer = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  const struct {
    const char* what;
    std::function<CUresult()> call;
  } rows[] = {
      {"cuMemAlloc", [&] { return d.cuMemAlloc_v2(&address, 64); }},
      {"cuMemFree", [&] { return d.cuMemFree_v2(address); }},
      {"cuMemAllocPitch", [&] { return d.cuMemAllocPitch_v2(&address, &pitch, 64, 4, 4); }},
      {"cuMemAllocHost", [&] { return d.cuMemAllocHost_v2(&pointer, 64); }},
      {"cuMemFreeHost", [&] { return d.cuMemFreeHost(pointer); }},
      {"cuMemHostRegister", [&] { return d.cuMemHostRegister_v2(page, sizeof page, 0); }},
      {"cuMemHostUnregister", [&] { return d.cuMemHostUnregister(page); }},
      {"cuEventQuery", [&] { return d.cuEventQuery(event); }},
  };
  for (const auto& row : rows) {
    begin(global);
    EXPECT_EQ(row.call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << row.what;
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << row.what;
    EXPECT_EQ(row.call(), CUDA_SUCCESS) << row.what;
  }
}

}  // namespace
}  // namespace ctxbroker::test
