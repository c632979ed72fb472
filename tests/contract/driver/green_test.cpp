// SPDX-License-Identifier: Apache-2.0
// Green contexts: what they are, what they keep alive, what of them dies when they end.
#include "green_context.hpp"

#if CUDA_VERSION >= 12090
namespace ctxbroker::test {
namespace {

using GreenContext = GreenTest;

TEST_F(GreenContext, IsAContextOnceConverted) {
  CUdevResource all = whole();
  CUgreenCtx other = create(&all, 1);
  EXPECT_EQ(d.cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(other)), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = context_of(other), current = nullptr;
  EXPECT_EQ(context_of(other), context);
  EXPECT_NE(context, primary);
  ASSERT_EQ(d.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  unsigned long long ids[3] = {};
  EXPECT_EQ(d.cuCtxGetId(primary, &ids[0]), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetId(context, &ids[1]), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxGetId(nullptr, &ids[2]), CUDA_SUCCESS) << "of the current one";
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[1], ids[2]);
  CUdevice of = -1;
  unsigned version = 0;
  EXPECT_EQ(d.cuCtxGetDevice(&of), CUDA_SUCCESS);
  EXPECT_EQ(of, device);
  EXPECT_EQ(d.cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
  EXPECT_EQ(version, 3020u);
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  EXPECT_EQ(d.cuGreenCtxGetId(nullptr, &ids[0]), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuGreenCtxDestroy(other), CUDA_SUCCESS);
}

TEST_F(GreenContext, CannotBeDestroyedAsAnOrdinaryOne) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(green_context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxDetach(green_context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxFromGreenCtx(nullptr, green), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GreenContext, SharesLimitsCacheModeAndFlagsWithThePrimary) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
  unsigned flags = 0;
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_MAP_HOST));
  ASSERT_EQ(d.cuCtxSetFlags(CU_CTX_SCHED_SPIN), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_SPIN) | CU_CTX_MAP_HOST);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  std::size_t limit = 0;
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  EXPECT_EQ(d.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(limit, 4096u);
  EXPECT_EQ(d.cuCtxGetCacheConfig(&config), CUDA_SUCCESS);
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_L1);
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_SPIN) | CU_CTX_MAP_HOST);
}

TEST_F(GreenContext, DefaultStreamIsOneThatWaitsForNoOtherAndCanBeCaptured) {
  unsigned flags = ~0U;
  CUgraph graph = nullptr;
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetFlags(nullptr, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(d.cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamEndCapture(nullptr, &graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamGetFlags(nullptr, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_STREAM_DEFAULT));
  EXPECT_EQ(d.cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(GreenContext, ShieldsThePrimaryFromResetsAndTheLastRelease) {
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(d.cuDevicePrimaryCtxReset(device), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 1, 4), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS) << "the test's own retain";
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_NOT_PERMITTED)
      << "the green context's";
  EXPECT_EQ(d.cuMemsetD8_v2(address, 2, 4), CUDA_SUCCESS);
  // That release counted all the same.
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  destroy_green();
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1) << "the green context had no retain left to give back";
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
}

TEST_F(GreenContext, HoldsThePrimaryByARetainOfItsOwn) {
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  destroy_green();
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
}

TEST_F(GreenContext, LeavesMemoryModulesAndEventsToThePrimary) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  CUmodule loaded = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventRecord(event, nullptr), CUDA_SUCCESS);
  CUcontext owner = nullptr;
  EXPECT_EQ(d.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
  EXPECT_EQ(owner, primary);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  destroy_green();
  CUfunction fill_function = nullptr;
  unsigned value = 5, count = 1, read = 0;
  void* arguments[] = {&address, &value, &count};
  EXPECT_EQ(d.cuModuleGetFunction(&fill_function, loaded, "fill"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchKernel(fill_function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&read, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(read, 5u);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(GreenContext, TakesTheUseOfItsStreamsWithIt) {
  ASSERT_EQ(d.cuCtxSetCurrent(green_context), CUDA_SUCCESS);
  CUstream made_in = nullptr, made_for = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&made_in, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(d.cuGreenCtxStreamCreate(&made_for, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  destroy_green();
  for (CUstream stream : {made_in, made_for}) {
    unsigned flags = 0;
    CUcontext context = nullptr;
    EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuStreamGetFlags(stream, &flags), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuStreamGetCtx(stream, &context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(launch("empty", stream, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS) << "the primary works on";
}

TEST_F(GreenContext, StaysCurrentAsACorpse) {
  ASSERT_EQ(d.cuCtxPushCurrent_v2(green_context), CUDA_SUCCESS);
  CUgreenCtx dead = green;
  destroy_green();
  CUcontext current = nullptr;
  CUdevice of = -1;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  unsigned long long id = 0;
  EXPECT_EQ(d.cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, green_context);
  EXPECT_EQ(d.cuCtxGetDevice(&of), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxGetId(nullptr, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxDestroy(dead), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxFromGreenCtx(&current, dead), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuGreenCtxGetId(dead, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

}  // namespace
}  // namespace ctxbroker::test
#endif
