// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class StreamTest : public KernelTest {
 protected:
  CUstream create(unsigned flags = CU_STREAM_DEFAULT) const {
    CUstream made = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent record(CUstream stream) const {
    CUevent event = nullptr;
    EXPECT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
    return event;
  }
  bool done(CUevent event) const {
    return eventually([&] { return d.cuEventQuery(event) == CUDA_SUCCESS; });
  }
  CUresult query(CUevent event) const { return d.cuEventQuery(event); }
};

TEST_F(StreamTest, IsMadeAsAskedFor) {
  CUstream blocking = create(), independent = create(CU_STREAM_NON_BLOCKING), none = nullptr;
  unsigned flags = 9;
  EXPECT_EQ(d.cuStreamGetFlags(blocking, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_STREAM_DEFAULT));
  EXPECT_EQ(d.cuStreamGetFlags(independent, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_STREAM_NON_BLOCKING));
  CUcontext context = nullptr;
  EXPECT_EQ(d.cuStreamGetCtx(blocking, &context), CUDA_SUCCESS);
  EXPECT_EQ(context, primary);
  EXPECT_EQ(d.cuStreamCreate(&none, 7), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamDestroy_v2(blocking), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(independent), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamDestroy_v2(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, ClampsPriorities) {
  int least = -9, greatest = 9, priority = 99;
  EXPECT_EQ(d.cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  EXPECT_LT(greatest, least);
  CUstream stream = nullptr;
  EXPECT_EQ(d.cuStreamCreateWithPriority(&stream, 0, -100), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(d.cuStreamCreateWithPriority(&stream, 0, 100), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, least);
}

TEST_F(StreamTest, DefaultStreamsHaveIdsOfTheirOwn) {
  unsigned long long null_id = 0, legacy_id = 0, thread_id = 0, ptsz_id = 0, others = 0;
  EXPECT_EQ(d.cuStreamGetId(nullptr, &null_id), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetId(CU_STREAM_LEGACY, &legacy_id), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetId(CU_STREAM_PER_THREAD, &thread_id), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetId_ptsz(nullptr, &ptsz_id), CUDA_SUCCESS);
  EXPECT_EQ(null_id, legacy_id);
  EXPECT_EQ(thread_id, ptsz_id);
  EXPECT_NE(null_id, thread_id);
  std::thread([&] {
    d.cuCtxSetCurrent(primary);
    d.cuStreamGetId(CU_STREAM_PER_THREAD, &others);
  }).join();
  EXPECT_NE(others, thread_id);
}

TEST_F(StreamTest, KeepsItsOrder) {
  CUstream stream = create();
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  unsigned count = 1;
  void* arguments[] = {&address, &count};
  EXPECT_EQ(d.cuMemsetD32Async(address, 0, 1, stream), CUDA_SUCCESS);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(launch("add_one", stream, arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  unsigned result = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&result, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(result, 200u);
}

TEST_F(StreamTest, EnqueuesWithoutWaiting) {
  CUstream stream = create();
  Hold hold(function("hold"), stream);
  EXPECT_EQ(launch("empty", stream, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(StreamTest, WorksWithoutACurrentContext) {
  CUstream stream = create();
  CUfunction empty = function("empty");
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(StreamTest, LegacyStreamWaitsForBlockingStreamsOnly) {
  CUstream blocking = create(), independent = create(CU_STREAM_NON_BLOCKING);
  {
    Hold hold(function("hold"), blocking);
    CUevent behind = record(nullptr);
    EXPECT_EQ(query(behind), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    hold.let_go();
    EXPECT_TRUE(done(behind));
  }
  {
    Hold hold(function("hold"), independent);
    EXPECT_TRUE(done(record(nullptr)));
    EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamQuery(independent), CUDA_ERROR_NOT_READY);
  }
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  CUstream blocking = create(), independent = create(CU_STREAM_NON_BLOCKING);
  Hold hold(function("hold"), nullptr);
  EXPECT_EQ(d.cuStreamQuery(blocking), CUDA_SUCCESS) << "nothing is in it";
  CUevent in_blocking = record(blocking), in_thread = record(CU_STREAM_PER_THREAD);
  EXPECT_EQ(query(in_blocking), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(query(in_thread), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(done(record(independent)));
  hold.let_go();
  EXPECT_TRUE(done(in_blocking));
  EXPECT_TRUE(done(in_thread));
}

// A copy to pageable memory waits itself; it must not overtake the legacy stream.
TEST_F(StreamTest, CopiesToPageableMemoryWaitForTheLegacyStream) {
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  unsigned value = 0;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  Hold hold(function("hold"), nullptr);
  ASSERT_EQ(fill(address, 6, 1, nullptr), CUDA_SUCCESS);
  std::thread copier([&] {
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&value, address, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  hold.let_go();
  copier.join();
  EXPECT_EQ(value, 6u);
}

TEST_F(StreamTest, PerThreadStreamsDoNotWaitForOthers) {
  CUstream blocking = create();
  Hold hold(function("hold"), blocking);
  EXPECT_TRUE(done(record(CU_STREAM_PER_THREAD)));
  EXPECT_EQ(d.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery_ptsz(nullptr), CUDA_SUCCESS);
}

TEST_F(StreamTest, CopiesDoNotWaitForAKernelOfAnotherStream) {
  CUstream busy = create(CU_STREAM_NON_BLOCKING), other = create(CU_STREAM_NON_BLOCKING);
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  void* memory = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&memory, 4), CUDA_SUCCESS);
  auto* pinned = static_cast<unsigned*>(memory);
  *pinned = 0;
  Hold hold(function("hold"), busy);
  EXPECT_EQ(d.cuMemsetD32Async(address, 9, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(pinned, address, 4, other), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return d.cuStreamQuery(other) == CUDA_SUCCESS; }));
  EXPECT_EQ(*pinned, 9u);
  EXPECT_EQ(d.cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamTest, DestroyedWhileBusyStillDoesItsWork) {
  CUstream stream = create();
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(address, 0, 1), CUDA_SUCCESS);
  {
    Hold hold(function("hold"), stream);
    EXPECT_EQ(fill(address, 5, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  unsigned result = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&result, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(result, 5u);
}

TEST_F(StreamTest, BelongsToItsContext) {
  CUcontext other = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  CUstream foreign = create();
  CUfunction empty = function("empty");
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, foreign, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE)
      << "the null stream is the current context's, the function another's";
  EXPECT_EQ(d.cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
}

TEST_F(StreamTest, HostFunctionsRunInOrderAndMayNotCallTheDriver) {
  struct Seen {
    const Driver& d;
    std::vector<int> order;
    CUresult allocate = CUDA_SUCCESS, synchronise = CUDA_SUCCESS, current = CUDA_SUCCESS;
    CUresult version = CUDA_ERROR_UNKNOWN;
  } seen{d, {}};
  CUstream stream = create();
  auto first = [](void* data) {
    Seen& to = *static_cast<Seen*>(data);
    to.order.push_back(1);
    CUdeviceptr address = 0;
    CUcontext context = nullptr;
    int version = 0;
    to.allocate = to.d.cuMemAlloc_v2(&address, 4);
    to.synchronise = to.d.cuCtxSynchronize();
    to.current = to.d.cuCtxGetCurrent(&context);
    to.version = to.d.cuDriverGetVersion(&version);
  };
  auto second = [](CUstream, CUresult status, void* data) {
    static_cast<Seen*>(data)->order.push_back(status == CUDA_SUCCESS ? 2 : -2);
  };
  EXPECT_EQ(d.cuLaunchHostFunc(stream, first, &seen), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamAddCallback(stream, second, &seen, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.order, (std::vector<int>{1, 2}));
  EXPECT_EQ(seen.allocate, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(seen.synchronise, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(seen.current, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(seen.version, CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchHostFunc(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamAddCallback(stream, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamAddCallback(stream, second, &seen, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, AWaitingHostFunctionDoesNotStopOtherStreams) {
  std::atomic<bool> let_go = false;
  CUstream held = create(CU_STREAM_NON_BLOCKING), other = create(CU_STREAM_NON_BLOCKING);
  // NVIDIA's driver loads a function at its first launch, and that waits for the host function.
  EXPECT_EQ(launch("empty", other, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(other), CUDA_SUCCESS);
  auto wait = [](void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
  };
  ASSERT_EQ(d.cuLaunchHostFunc(held, wait, &let_go), CUDA_SUCCESS);
  EXPECT_EQ(launch("empty", other, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  let_go = true;
  EXPECT_EQ(d.cuStreamSynchronize(held), CUDA_SUCCESS);
}

TEST_F(StreamTest, ManyThreadsShareADevice) {
  constexpr unsigned threads = 4, rounds = 100;
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, threads * 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(address, 0, threads), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  CUfunction add_one = function("add_one");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> workers;
  for (unsigned worker = 0; worker < threads; ++worker)
    workers.emplace_back([&, worker] {
      wrong += d.cuCtxSetCurrent(primary) != CUDA_SUCCESS;
      CUstream stream = nullptr;
      wrong += d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
      CUdeviceptr cell = address + worker * 4;
      unsigned count = 1;
      void* arguments[] = {&cell, &count};
      for (unsigned i = 0; i < rounds; ++i) {
        wrong += d.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) !=
                 CUDA_SUCCESS;
        if (i % 10 == 0) wrong += d.cuStreamSynchronize(stream) != CUDA_SUCCESS;
      }
      wrong += d.cuStreamSynchronize(stream) != CUDA_SUCCESS;
      wrong += d.cuStreamDestroy_v2(stream) != CUDA_SUCCESS;
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
  std::vector<unsigned> result(threads);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(result.data(), address, threads * 4), CUDA_SUCCESS);
  EXPECT_EQ(result, std::vector<unsigned>(threads, rounds));
}

TEST_F(StreamTest, IsNotCapturing) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(d.cuStreamIsCapturing(create(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace
}  // namespace ctxbroker::test
