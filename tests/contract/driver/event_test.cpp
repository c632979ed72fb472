// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class EventTest : public KernelTest {
 protected:
  CUevent create(unsigned flags = CU_EVENT_DEFAULT) const {
    CUevent made = nullptr;
    EXPECT_EQ(d.cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream made = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
};

TEST_F(EventTest, NeverRecordedCountsAsDone) {
  CUevent event = create();
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(stream(), event, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
}

TEST_F(EventTest, RefusesUnknownFlags) {
  CUevent event = nullptr;
  EXPECT_EQ(d.cuEventCreate(&event, 0x100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamWaitEvent(stream(), create(), 7), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamWaitEvent(stream(), nullptr, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, IsReachedWhenTheWorkBeforeItIsDone) {
  CUstream busy = stream();
  CUevent event = create(CU_EVENT_DISABLE_TIMING);
  Hold hold(function("hold"), busy);
  EXPECT_EQ(d.cuEventRecord(event, busy), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(EventTest, MakesAnotherStreamWait) {
  CUstream producer = stream(), consumer = stream();
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 8), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(address, 0, 2), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  CUevent written = create(CU_EVENT_DISABLE_TIMING);
  {
    Hold hold(function("hold"), producer);
    EXPECT_EQ(fill(address, 77, 1, producer), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventRecord(written, producer), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(consumer, written, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoDAsync_v2(address + 4, address, 4, consumer), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventDestroy_v2(written), CUDA_SUCCESS) << "while it is waited for";
    EXPECT_EQ(d.cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuStreamSynchronize(consumer), CUDA_SUCCESS);
  unsigned result = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&result, address + 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(result, 77u);
}

TEST_F(EventTest, StreamWaitsForTheRecordBeforeTheWaitOnly) {
  CUstream producer = stream(), consumer = stream();
  CUevent event = create(CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(d.cuEventRecord(event, producer), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamWaitEvent(consumer, event, 0), CUDA_SUCCESS);
  Hold hold(function("hold"), producer);
  EXPECT_EQ(d.cuEventRecord(event, producer), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(consumer), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_NOT_READY);
}

TEST_F(EventTest, MeasuresTime) {
  CUstream busy = stream();
  CUevent start = create(), end = create();
  float milliseconds = -1;
  {
    Hold hold(function("hold"), busy);
    EXPECT_EQ(d.cuEventRecord(end, busy), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE)
        << "the first was never recorded";
    EXPECT_EQ(d.cuEventElapsedTime(&milliseconds, end, end), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuEventRecord(start, busy), CUDA_SUCCESS);
  {
    Hold hold(function("hold"), busy);
    EXPECT_EQ(d.cuEventRecord(end, busy), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(d.cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 19.f);
  EXPECT_LT(milliseconds, 10000.f);
  float backwards = 0;
  EXPECT_EQ(d.cuEventElapsedTime(&backwards, end, start), CUDA_SUCCESS);
  EXPECT_FLOAT_EQ(backwards, -milliseconds);
}

TEST_F(EventTest, WithoutTimingHasNoTime) {
  CUevent timed = create(), untimed = create(CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(d.cuEventRecord(timed, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(untimed, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(d.cuEventElapsedTime(&milliseconds, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, BelongsToItsContextButIsWaitedForAcross) {
  CUevent event = create(CU_EVENT_DISABLE_TIMING);
  CUstream here = stream();
  CUcontext other = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  CUstream foreign = stream();
  EXPECT_EQ(d.cuEventRecord(event, foreign), CUDA_ERROR_INVALID_HANDLE);
  {
    CUcontext popped = nullptr;
    ASSERT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    Hold hold(function("hold"), here);
    EXPECT_EQ(d.cuEventRecord(event, here), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxPushCurrent_v2(popped), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(foreign, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamQuery(foreign), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuStreamSynchronize(foreign), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(other), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
