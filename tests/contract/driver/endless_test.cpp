// SPDX-License-Identifier: Apache-2.0
// Kernels that do not end: who goes on beside them, and who waits.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class EndlessTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuMemAlloc_v2(&memory, 4), CUDA_SUCCESS);
    // A driver may load a kernel when it is first launched, and wait for others to do so.
    ASSERT_EQ(fill(memory, 0, 1, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  CUstream make_stream() const {
    CUstream made = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
  }
  unsigned read(CUstream stream) const {
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(&value, memory, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return value;
  }
  CUdeviceptr memory = 0;
};

TEST_F(EndlessTest, KernelsOfOtherStreamsRunBesideAnEndlessKernel) {
  CUstream held = make_stream(), other = make_stream();
  Hold hold(function("hold"), held);
  for (unsigned i = 1; i <= 20; ++i) {
    EXPECT_EQ(fill(memory, i, 1, other), CUDA_SUCCESS);
    EXPECT_EQ(read(other), i);
  }
  EXPECT_EQ(d.cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(held), CUDA_SUCCESS);
}

TEST_F(EndlessTest, SeveralEndlessKernelsHoldNoOtherStreamUp) {
  std::vector<std::unique_ptr<Hold>> holds;
  std::vector<CUstream> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(make_stream());
    holds.push_back(std::make_unique<Hold>(function("hold"), streams.back()));
  }
  CUstream other = make_stream();
  EXPECT_EQ(fill(memory, 9, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(read(other), 9u);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    EXPECT_EQ(d.cuStreamQuery(streams[i]), CUDA_ERROR_NOT_READY);
    holds[i]->let_go();
    EXPECT_EQ(d.cuStreamSynchronize(streams[i]), CUDA_SUCCESS);
  }
}

TEST_F(EndlessTest, WorkOfItsOwnStreamWaitsForAnEndlessKernel) {
  CUstream held = make_stream();
  Hold hold(function("hold"), held);
  EXPECT_EQ(fill(memory, 5, 1, held), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(read(make_stream()), 0u);
  hold.let_go();
  EXPECT_EQ(read(held), 5u);
}

TEST_F(EndlessTest, MemsetOfAnotherStreamEndsAWaitingKernel) {
  CUstream held = make_stream(), other = make_stream();
  CUdeviceptr flag = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&flag, 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(flag, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  void* arguments[] = {&flag};
  ASSERT_EQ(launch("hold", held, arguments), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(d.cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuMemsetD32Async(flag, 1, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(held), CUDA_SUCCESS);
}

TEST_F(EndlessTest, ContextDestructionWaitsForItsEndlessKernel) {
  CUcontext own = nullptr;
  CUmodule loaded = nullptr;
  CUfunction hold_function = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&hold_function, loaded, "hold"), CUDA_SUCCESS);
  CUdeviceptr flag = 0;
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&flag, 4), CUDA_SUCCESS);  // in the primary, to survive
  ASSERT_EQ(d.cuMemsetD32_v2(flag, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(own), CUDA_SUCCESS);
  void* arguments[] = {&flag};
  ASSERT_EQ(d.cuLaunchKernel(hold_function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
    destroyed = true;
  });
  CUstream other = make_stream();
  EXPECT_EQ(fill(memory, 3, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(read(other), 3u) << "the primary goes on";
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(d.cuMemsetD32Async(flag, 1, 1, other), CUDA_SUCCESS);
  destroyer.join();
  EXPECT_TRUE(destroyed);
}

}  // namespace
}  // namespace ctxbroker::test
