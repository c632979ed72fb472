// SPDX-License-Identifier: Apache-2.0
// Which calls wait for work of other contexts, and streams that a green context lacks.
#include "facts.hpp"

namespace ctxbroker::test {
namespace {

// A kernel that does not end runs in one context while another one calls the driver.
class WaitingFacts : public FactsTest {
 protected:
  void SetUp() override {
    FactsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    Split split = split_device(device, 1);
    ASSERT_GE(split.groups.size(), 2u);
    caller = green({split.groups[0]});
    neighbour = green({split.groups[1]});
    hold = function("hold");
  }
  Green caller, neighbour;
  CUfunction hold = nullptr;
};

TEST_F(WaitingFacts, SynchronizeInAGreenContextWaitsForItsOwnWorkAlone) {
  Hold in_primary(hold, nullptr);
  {
    Current entered(neighbour.context);
    Hold in_neighbour(hold, nullptr);
    Call call(caller.context, [&] { return d.cuCtxSynchronize(); });
    EXPECT_TRUE(call.returns_within(long_enough));
    EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    in_neighbour.let_go();
    in_primary.let_go();
    EXPECT_EQ(call.status(), CUDA_SUCCESS);
  }
  Current entered(caller.context);
  Hold own(hold, nullptr);
  Call call(caller.context, [&] { return d.cuCtxSynchronize(); });
  EXPECT_FALSE(call.returns_within(a_while));
  own.let_go();
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, FreeInAGreenContextWaitsForAnotherOne) {
  const CUdeviceptr address = memory(1 << 20);
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] { return d.cuMemFree_v2(address); });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, AllocatingInAGreenContextWaitsForNoOtherContext) {
  CUdeviceptr address = 0;
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] { return d.cuMemAlloc_v2(&address, 1 << 20); });
  EXPECT_TRUE(call.returns_within(long_enough));
  hog.let_go();
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, PoolAllocationInAGreenContextWaitsForNoOtherContext) {
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] {
    CUstream stream = nullptr;
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAllocAsync(&address, 1 << 20, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return d.cuStreamDestroy_v2(stream);
  });
  EXPECT_TRUE(call.returns_within(long_enough));
  hog.let_go();
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
}

// The module has initialised variables, and the driver has kept its translation.
TEST_F(WaitingFacts, LoadingAModuleInAGreenContextWaitsForAnotherOne) {
  CUmodule loaded = nullptr;
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] { return d.cuModuleLoadData(&loaded, kernels_ptx); });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, UnloadingAModuleInAGreenContextWaitsForAnotherOne) {
  CUmodule loaded = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] { return d.cuModuleUnload(loaded); });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
}

// The kernel's code comes into the context at its first launch.
TEST_F(WaitingFacts, FirstLaunchOfALibrarysKernelWaitsForAnotherContext) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(d.cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetKernel(&kernel, library, "empty"), CUDA_SUCCESS);
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] {
    return d.cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr,
                            nullptr, nullptr);
  });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, UnloadingALibraryWaitsForAnotherContext) {
  CUlibrary library = nullptr;
  CUmodule placed = nullptr;
  ASSERT_EQ(d.cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetModule(&placed, library), CUDA_SUCCESS);
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call call(caller.context, [&] { return d.cuLibraryUnload(library); });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, MakingAGreenContextWaitsForKernelsOfThePrimarysFamily) {
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Green made;
  Call call(caller.context, [&] {
    made = make_green(device, {all_multiprocessors(device)});
    return CUDA_SUCCESS;
  });
  EXPECT_FALSE(call.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
  destroy_green(made);
}

TEST_F(WaitingFacts, MakingAPrivateContextWaitsForNoKernelOfThePrimary) {
  Hold hog(hold, nullptr);
  CUcontext made = nullptr;
  CUmodule loaded = nullptr;
  Call call(caller.context, [&] {
    const CUresult status = d.cuCtxCreate_v2(&made, 0, device);
    EXPECT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    return status;
  });
  EXPECT_TRUE(call.returns_within(long_enough));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the kernel still runs";
  hog.let_go();
  EXPECT_EQ(call.status(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, EndingAPrivateContextWaitsForKernelsOfThePrimary) {
  CUcontext ending = private_context();
  Hold hog(hold, nullptr);
  Call end(primary, [&] { return d.cuCtxDestroy_v2(ending); });
  EXPECT_FALSE(end.returns_within(a_while));
  hog.let_go();
  EXPECT_TRUE(end.returns_within(long_enough));
  EXPECT_EQ(end.status(), CUDA_SUCCESS);
  gone(ending);
}

// The control is MakingAPrivateContextWaitsForNoKernelOfThePrimary.
TEST_F(WaitingFacts, MakingAPrivateContextWaitsWhileAnotherOneEnds) {
  CUcontext ending = private_context();
  Hold hog(hold, nullptr);
  Call end(primary, [&] { return d.cuCtxDestroy_v2(ending); });
  EXPECT_FALSE(end.returns_within(a_while));
  CUcontext made = nullptr;
  Call make(primary, [&] {
    const CUresult status = d.cuCtxCreate_v2(&made, 0, device);
    CUcontext popped = nullptr;
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    return status;
  });
  EXPECT_FALSE(make.returns_within(std::chrono::seconds(2))) << "making one takes 0.3 s";
  hog.let_go();
  EXPECT_EQ(end.status(), CUDA_SUCCESS);
  EXPECT_EQ(make.status(), CUDA_SUCCESS);
  gone(ending);
  EXPECT_EQ(d.cuCtxDestroy_v2(made), CUDA_SUCCESS);
}

// The calls of another thread beside a load in the same context. The load waits for a kernel.
class BesideALoad : public WaitingFacts, public ::testing::WithParamInterface<const char*> {};

TEST_P(BesideALoad, OnlyTheLifeOfAStreamAndANewEventWaitForTheLoad) {
  CUmodule loaded = nullptr;
  CUstream stream = nullptr, made = nullptr;
  CUevent event = nullptr;
  {
    Current entered(caller.context);
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  Current entered(neighbour.context);
  Hold hog(hold, nullptr);
  Call load(caller.context, [&] { return d.cuModuleLoadData(&loaded, kernels_ptx); });
  EXPECT_FALSE(load.returns_within(a_while));
  const std::string what = GetParam();
  Call other(caller.context, [&] {
    if (what == "create") return d.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    if (what == "query") return d.cuStreamQuery(stream);
    if (what == "create_event") return d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    return d.cuStreamDestroy_v2(stream);
  });
  EXPECT_EQ(other.returns_within(std::chrono::seconds(2)), what == "query");
  hog.let_go();
  EXPECT_EQ(other.status(), CUDA_SUCCESS);
  EXPECT_EQ(load.status(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
  if (event != nullptr) {
    EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  }
  for (CUstream one : {made, what == "destroy" ? nullptr : stream}) {
    if (one != nullptr) {
      EXPECT_EQ(d.cuStreamDestroy_v2(one), CUDA_SUCCESS);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, BesideALoad,
                         ::testing::Values("create", "query", "destroy", "create_event"),
                         [](const auto& one) { return std::string(one.param); });

TEST_F(WaitingFacts, NothingInAPrivateContextWaitsForThePrimary) {
  CUcontext own = private_context();
  CUdeviceptr address = 0;
  {
    Current entered(own);
    address = memory(1 << 20);
  }
  Hold hog(hold, nullptr);
  Call synchronize(own, [&] { return d.cuCtxSynchronize(); });
  EXPECT_TRUE(synchronize.returns_within(long_enough));
  Call free(own, [&] { return d.cuMemFree_v2(address); });
  EXPECT_TRUE(free.returns_within(long_enough));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  hog.let_go();
  EXPECT_EQ(synchronize.status(), CUDA_SUCCESS);
  EXPECT_EQ(free.status(), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, NothingInAPrivateContextWaitsForAnotherPrivateOne) {
  CUcontext own = private_context(), other = private_context();
  CUdeviceptr address = 0;
  {
    Current entered(own);
    address = memory(1 << 20);
  }
  Current entered(other);
  CUmodule loaded = nullptr;
  CUfunction others_hold = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&others_hold, loaded, "hold"), CUDA_SUCCESS);
  Hold hog(others_hold, nullptr);
  Call synchronize(own, [&] { return d.cuCtxSynchronize(); });
  EXPECT_TRUE(synchronize.returns_within(long_enough));
  Call free(own, [&] { return d.cuMemFree_v2(address); });
  EXPECT_TRUE(free.returns_within(long_enough));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  hog.let_go();
  EXPECT_EQ(synchronize.status(), CUDA_SUCCESS);
  EXPECT_EQ(free.status(), CUDA_SUCCESS);
}

TEST_F(WaitingFacts, ThePerThreadDefaultStreamIsOneUnderTheOthers) {
  const CUfunction empty = function("empty");
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  Current entered(private_context());
  EXPECT_EQ(d.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
