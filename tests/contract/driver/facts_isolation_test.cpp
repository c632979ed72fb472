// SPDX-License-Identifier: Apache-2.0
// Isolation: what a context of its own does not give, and what it does.
#include "facts.hpp"

namespace ctxbroker::test {
namespace {

using IsolationFacts = FactsTest;

TEST_F(IsolationFacts, AKernelOfAPrivateContextReadsAndWritesAnothersMemory) {
  CUcontext owner = private_context(), other = private_context();
  CUdeviceptr address = 0;
  {
    Current entered(owner);
    address = memory(4, 41);
  }
  {
    Current entered(other);
    CUmodule loaded = nullptr;
    CUfunction add = nullptr;
    ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
    ASSERT_EQ(d.cuModuleGetFunction(&add, loaded, "add_one"), CUDA_SUCCESS);
    unsigned one = 1;
    void* arguments[] = {&address, &one};
    EXPECT_EQ(d.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  Current entered(owner);
  EXPECT_EQ(word_at(address), 42u);
}

TEST_F(IsolationFacts, AStreamOfADestroyedPrimaryIsNoSuccess) {
  expect_refused_or_crashed([&] {
    CUstream stream = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
    return d.cuStreamSynchronize(stream);
  });
}

TEST_F(IsolationFacts, AFunctionOfADestroyedPrimaryIsNoSuccess) {
  expect_refused_or_crashed([&] {
    const CUfunction empty = function("empty");
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
    return d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  });
}

TEST_F(IsolationFacts, MemoryOfADestroyedPrimaryIsNoSuccess) {
  expect_refused_or_crashed([&] {
    const CUdeviceptr address = memory(4);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
    unsigned word = 0;
    return d.cuMemcpyDtoH_v2(&word, address, sizeof word);
  });
}

// Time slices: on one GPU, late by some milliseconds.
TEST_F(IsolationFacts, APrivateContextRunsBesideAnEndlessKernel) {
  CUcontext busy = private_context(), other = private_context();
  Current entered(busy);
  CUmodule loaded = nullptr;
  CUfunction hold = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&hold, loaded, "hold"), CUDA_SUCCESS);
  Hold endless(hold, nullptr);
  Call neighbour(other, [&] {
    CUmodule own = nullptr;
    CUfunction empty = nullptr;
    EXPECT_EQ(d.cuModuleLoadData(&own, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&empty, own, "empty"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_SUCCESS);
    return d.cuCtxSynchronize();
  });
  EXPECT_TRUE(neighbour.returns_within(long_enough));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "still endless";
  endless.let_go();
  EXPECT_EQ(neighbour.status(), CUDA_SUCCESS);
}

TEST_F(IsolationFacts, DestroyingAContextWaitsForItsEndlessKernel) {
  // The flag is the primary's memory: it outlives the context whose kernel waits for it.
  void* page = nullptr;
  CUdeviceptr flag = 0;
  ASSERT_EQ(d.cuMemHostAlloc(&page, 4, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  auto* word = static_cast<unsigned*>(page);
  *word = 0;
  ASSERT_EQ(d.cuMemHostGetDevicePointer_v2(&flag, page, 0), CUDA_SUCCESS);
  CUcontext busy = private_context();
  {
    Current entered(busy);
    CUmodule loaded = nullptr;
    CUfunction hold = nullptr;
    ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
    ASSERT_EQ(d.cuModuleGetFunction(&hold, loaded, "hold"), CUDA_SUCCESS);
    void* arguments[] = {&flag};
    EXPECT_EQ(d.cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
  }
  Call destroy(primary, [&] { return d.cuCtxDestroy_v2(busy); });
  EXPECT_FALSE(destroy.returns_within(a_while));
  std::atomic_ref<unsigned>(*word).store(1);
  EXPECT_TRUE(destroy.returns_within(long_enough));
  EXPECT_EQ(destroy.status(), CUDA_SUCCESS);
  gone(busy);
  EXPECT_EQ(d.cuMemFreeHost(page), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
