// SPDX-License-Identifier: Apache-2.0
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class ContextTest : public DriverTest {
 protected:
  CUcontext create(unsigned flags = 0) const {
    CUcontext made = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&made, flags, device), CUDA_SUCCESS);
    return made;
  }
  CUcontext current() const {
    CUcontext found = nullptr;
    EXPECT_EQ(d.cuCtxGetCurrent(&found), CUDA_SUCCESS);
    return found;
  }
  CUcontext pop() const {
    CUcontext popped = nullptr;
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    return popped;
  }
  CUresult allocate() const {
    CUdeviceptr address = 0;
    return d.cuMemAlloc_v2(&address, 64);
  }
};

TEST_F(ContextTest, IsCurrentWhenMadeAndGoneFromTheStackWhenDestroyed) {
  CUcontext made = create();
  EXPECT_EQ(current(), made);
  EXPECT_NE(made, primary);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
  EXPECT_EQ(current(), primary);
}

TEST_F(ContextTest, StackWorksLikeAStack) {
  CUcontext first = create(), second = create();
  EXPECT_EQ(pop(), second);
  EXPECT_EQ(pop(), first);
  EXPECT_EQ(pop(), primary);
  CUcontext none = nullptr;
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&none), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(d.cuCtxPushCurrent_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxPushCurrent_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSetCurrent(second), CUDA_SUCCESS) << "replaces the top";
  EXPECT_EQ(pop(), second);
  EXPECT_EQ(pop(), first);
  EXPECT_EQ(d.cuCtxSetCurrent(second), CUDA_SUCCESS) << "pushes on an empty stack";
  EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS) << "pops";
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(d.cuCtxPushCurrent_v2(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(ContextTest, CallsWithoutACurrentContextFail) {
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  CUdevice found = 0;
  CUstream stream = nullptr;
  CUmodule module = nullptr;
  unsigned flags = 0;
  char byte = 0;
  EXPECT_EQ(allocate(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxGetDevice(&found), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(0x1000, &byte, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuMemFree_v2(0), CUDA_SUCCESS);
}

TEST_F(ContextTest, ContextMayBeDestroyedByAnyThread) {
  CUcontext made = create();
  EXPECT_EQ(pop(), made);
  CUresult destroyed = CUDA_ERROR_UNKNOWN, used = CUDA_ERROR_UNKNOWN;
  CUcontext seen = nullptr;
  std::thread([&] {
    d.cuCtxSetCurrent(made);
    std::thread([&] { destroyed = d.cuCtxDestroy_v2(made); }).join();
    used = allocate();
    d.cuCtxPopCurrent_v2(&seen);
  }).join();
  EXPECT_EQ(destroyed, CUDA_SUCCESS);
  EXPECT_EQ(used, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(seen, made) << "the dead one stays on the stack until it is popped";
  EXPECT_EQ(allocate(), CUDA_SUCCESS) << "the primary is another context";
}

TEST_F(ContextTest, DestroyedContextOnTheStackFailsOnUse) {
  CUcontext lower = create(), upper = create();
  EXPECT_EQ(d.cuCtxDestroy_v2(lower), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(pop(), upper);
  EXPECT_EQ(current(), lower);
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  std::size_t limit = 0;
  EXPECT_EQ(d.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUdevice found = -1;
  EXPECT_EQ(d.cuCtxGetDevice(&found), CUDA_SUCCESS);
  EXPECT_EQ(found, device);
  EXPECT_EQ(pop(), lower);
  EXPECT_EQ(d.cuCtxDestroy_v2(upper), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(upper), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxDestroy_v2(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, SharesOneAddressSpaceWithTheOthers) {
  CUcontext made = create();
  CUdeviceptr address = 0;
  unsigned sent = 4711, received = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, sizeof sent), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemcpyHtoD_v2(address, &sent, sizeof sent), CUDA_SUCCESS);
  EXPECT_EQ(pop(), made);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&received, address, sizeof received), CUDA_SUCCESS);
  EXPECT_EQ(received, sent);
  CUcontext owner = nullptr;
  EXPECT_EQ(d.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
  EXPECT_EQ(owner, made);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
}

TEST_F(ContextTest, DestroyedContextTakesItsMemoryWithIt) {
  CUcontext made = create();
  CUdeviceptr address = 0;
  unsigned value = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, std::size_t(8) << 20), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, sizeof value), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, HasAnIdAndFlagsOfItsOwn) {
  CUcontext first = create(), second = create(CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST);
  unsigned long long ids[3] = {};
  EXPECT_EQ(d.cuCtxGetId(primary, &ids[0]), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetId(first, &ids[1]), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetId(nullptr, &ids[2]), CUDA_SUCCESS) << "of the current one";
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[1], ids[2]);
  unsigned flags = 0;
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_SPIN) | CU_CTX_MAP_HOST);
  unsigned version = 0;
  EXPECT_EQ(d.cuCtxGetApiVersion(second, &version), CUDA_SUCCESS);
  EXPECT_EQ(version, 3020u);
  EXPECT_EQ(d.cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(first), CUDA_SUCCESS);
  CUcontext none = nullptr;
  EXPECT_EQ(d.cuCtxCreate_v2(&none, 0x1000, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxCreate_v2(&none, 0, 77), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuCtxCreate_v2(nullptr, 0, device), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, NewerFormsOfCreateMakeAContext) {
  CUcontext made = nullptr;
  EXPECT_EQ(d.cuCtxCreate_v3(&made, nullptr, 0, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(current(), made);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
#if CUDA_VERSION >= 12050
  EXPECT_EQ(d.cuCtxCreate_v4(&made, nullptr, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(current(), made);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
#endif
}

TEST_F(ContextTest, IsCountedByAttachAndDetach) {
  CUcontext made = create(), attached = nullptr;
  EXPECT_EQ(d.cuCtxAttach(&attached, 0), CUDA_SUCCESS);
  EXPECT_EQ(attached, made);
  EXPECT_EQ(d.cuCtxDetach(made), CUDA_SUCCESS);
  EXPECT_EQ(current(), made);
  EXPECT_EQ(d.cuCtxDetach(made), CUDA_SUCCESS);
  EXPECT_EQ(current(), primary) << "the last detach destroys it";
}

TEST_F(ContextTest, KeepsLimitsOfItsOwn) {
  CUcontext first = create();
  ASSERT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  CUcontext second = create();
  std::size_t limit = 0;
  EXPECT_EQ(d.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_NE(limit, 4096u);
  EXPECT_EQ(pop(), second);
  EXPECT_EQ(d.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(limit, 4096u);
  EXPECT_EQ(d.cuCtxSetLimit(static_cast<CUlimit>(50), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  EXPECT_EQ(d.cuCtxGetCacheConfig(&config), CUDA_SUCCESS);
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_L1);
  EXPECT_EQ(d.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(77)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(first), CUDA_SUCCESS);
}

TEST_F(ContextTest, ManyThreadsMakeUseAndDestroyTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        CUcontext made = nullptr;
        CUdeviceptr address = 0;
        wrong += d.cuCtxCreate_v2(&made, 0, device) != CUDA_SUCCESS;
        wrong += d.cuMemAlloc_v2(&address, 4096) != CUDA_SUCCESS;
        wrong += d.cuMemsetD8_v2(address, 1, 4096) != CUDA_SUCCESS;
        wrong += d.cuCtxSynchronize() != CUDA_SUCCESS;
        wrong += d.cuCtxDestroy_v2(made) != CUDA_SUCCESS;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ContextTest, ThreadsHaveACaptureModeEach) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(d.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::thread([&] {
    CUstreamCaptureMode others = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    d.cuThreadExchangeStreamCaptureMode(&others);
    EXPECT_EQ(others, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }).join();
  EXPECT_EQ(d.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(ContextTest, ContextSettingsNeedACurrentContext) {
  CUsharedconfig config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  EXPECT_EQ(d.cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetSharedMemConfig(&config), CUDA_SUCCESS);
  EXPECT_EQ(config, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
  EXPECT_EQ(d.cuCtxResetPersistingL2Cache(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuProfilerStart(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuProfilerStop(), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetSharedMemConfig(&config), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxResetPersistingL2Cache(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuProfilerStart(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuProfilerStop(), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace ctxbroker::test
