// SPDX-License-Identifier: Apache-2.0
// Work in green contexts: streams, events, who waits for whom.
#include <thread>

#include "green_context.hpp"

#if CUDA_VERSION >= 12090
namespace ctxbroker::test {
namespace {

class GreenWork : public GreenTest {
 protected:
  void SetUp() override {
    GreenTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (stream != nullptr && green != nullptr) {
      EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    }
    GreenTest::TearDown();
  }
  CUstream stream = nullptr;
};

TEST_F(GreenWork, StreamsKnowTheirContexts) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUstream made_in = nullptr, refused = nullptr;
  ASSERT_EQ(d.cuStreamCreateWithPriority(&made_in, CU_STREAM_DEFAULT, -1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxStreamCreate(&refused, green, CU_STREAM_DEFAULT, 0),
            CUDA_ERROR_INVALID_VALUE);
  for (CUstream each : {stream, made_in, CUstream(nullptr), CU_STREAM_LEGACY}) {
    CUcontext context = nullptr, regular = nullptr;
    CUgreenCtx first = nullptr, second = nullptr;
    EXPECT_EQ(d.cuStreamGetCtx(each, &context), CUDA_SUCCESS);
    EXPECT_EQ(context, green_context);
    EXPECT_EQ(d.cuStreamGetCtx_v2(each, &regular, &first), CUDA_SUCCESS);
    EXPECT_EQ(regular, primary);
    EXPECT_EQ(first, green);
    EXPECT_EQ(d.cuStreamGetGreenCtx(each, &second), CUDA_SUCCESS);
    EXPECT_EQ(second, green);
  }
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  CUcontext regular = nullptr;
  CUgreenCtx none = green;
  EXPECT_EQ(d.cuStreamGetCtx_v2(nullptr, &regular, &none), CUDA_SUCCESS);
  EXPECT_EQ(regular, primary);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(d.cuStreamDestroy_v2(made_in), CUDA_SUCCESS);
}

TEST_F(GreenWork, HasNoDefaultStreamPerThread) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  unsigned value = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  EXPECT_EQ(launch("empty", CU_STREAM_PER_THREAD, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamSynchronize_ptsz(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamGetCtx(CU_STREAM_PER_THREAD, &context), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuMemsetD8Async(address, 1, 4, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuMemcpyDtoH_v2_ptds(&value, address, 4), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(fill(address, 3, 1, nullptr), CUDA_SUCCESS) << "the legacy stream works";
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 3u);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
}

// A hold in one context; what is synchronised in another returns while it runs.
TEST_F(GreenWork, SynchronizeOfAGreenContextWaitsForItsOwnWorkAlone) {
  CUstream of_primary = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&of_primary, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Hold hold(function("hold"), of_primary);
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(of_primary), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(of_primary), CUDA_SUCCESS);
}

// So the broker leaves a lease before it waits.
TEST_F(GreenWork, IsWaitedForWithoutACurrentContext) {
  Hold hold(function("hold"), stream);
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
}

TEST_F(GreenWork, IsWaitedForByThePrimary) {
  Hold hold(function("hold"), stream);
  std::atomic<bool> returned = false;
  std::thread waiter([&] {
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned);
  hold.let_go();
  waiter.join();
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(GreenWork, GoesOnWhenItsContextIsDestroyed) {
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  Hold hold(function("hold"), stream);
  ASSERT_EQ(fill(address, 77, 1, stream), CUDA_SUCCESS);
  destroy_green();  // returns though the kernel runs
  hold.let_go();
  unsigned value = 0;
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 77u);
}

TEST_F(GreenWork, LegacyStreamAndOthersAreIndependent) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUstream blocking = nullptr;
  unsigned flags = 0;
  ASSERT_EQ(d.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetFlags(blocking, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_STREAM_NON_BLOCKING)) << "whatever it was asked for";
  Hold hold(function("hold"), blocking);
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(blocking), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  Hold in_legacy(function("hold"), nullptr);
  EXPECT_EQ(d.cuEventRecord(event, blocking), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return d.cuEventQuery(event) == CUDA_SUCCESS; }));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  in_legacy.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(blocking), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
}

TEST_F(GreenWork, EventsOfThePrimaryServeItsGreenContexts) {
  CUevent event = nullptr;
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  CUcontext own = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  CUevent foreign = nullptr;
  ASSERT_EQ(d.cuEventCreate(&foreign, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(foreign, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuGreenCtxRecordEvent(green, foreign), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuCtxRecordEvent(primary, foreign), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuCtxRecordEvent(own, foreign), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxWaitEvent(primary, foreign), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxRecordEvent(nullptr, foreign), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxWaitEvent(nullptr, foreign), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
}

// One event stands for all streams of a context, and holds back all that another is given later.
TEST_F(GreenWork, ContextsWaitForEachOther) {
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  CUstream of_primary = nullptr;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(address, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&of_primary, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  Hold hold(function("hold"), stream);
  ASSERT_EQ(fill(address, 41, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGreenCtxRecordEvent(green, event), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxWaitEvent(primary, event), CUDA_SUCCESS);
  void* arguments[] = {&address, nullptr};
  unsigned count = 1;
  arguments[1] = &count;
  ASSERT_EQ(launch("add_one", of_primary, arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuStreamQuery(of_primary), CUDA_ERROR_NOT_READY);
  hold.let_go();
  unsigned value = 0;
  EXPECT_EQ(d.cuStreamSynchronize(of_primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 42u);
}

}  // namespace
}  // namespace ctxbroker::test
#endif
