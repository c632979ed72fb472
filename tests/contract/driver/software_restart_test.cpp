// SPDX-License-Identifier: Apache-2.0
// A driver that starts over in one process, also after a fault.
#include <atomic>
#include <chrono>
#include <thread>

#include "driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker::test {
namespace {

// One life of the driver, from cuInit to work on the primary.
struct Life {
  Life() {
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
  }
  CUresult launch(const char* name, CUstream stream, void** arguments) const {
    CUfunction function = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
  }

  const Driver& d = driver();
  CUcontext primary = nullptr;
  CUmodule module = nullptr;
};

TEST(SoftwareRestart, RestartBeforeInitIsRefused) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child(
      [] { EXPECT_EQ(SoftwareControls(driver().path).restart(), CUDA_ERROR_NOT_INITIALIZED); });
}

TEST(SoftwareRestart, ForgetsAFaultAndAllHandles) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    const Driver& d = driver();
    CUcontext own = nullptr, current = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr address = 0;
    CUmodule module = nullptr;
    {
      Life life;
      module = life.module;
      EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
      EXPECT_EQ(life.launch("crash", nullptr, nullptr), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&current, 0), CUDA_ERROR_ILLEGAL_ADDRESS)
          << "without a restart the fault is for ever";
    }
    EXPECT_EQ(SoftwareControls(driver().path).restart(), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxGetCurrent(&current), CUDA_ERROR_NOT_INITIALIZED);
    Life life;
    EXPECT_EQ(life.launch("empty", nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    CUcontext fresh = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&fresh, 0, 0), CUDA_SUCCESS);
    EXPECT_NE(fresh, own);
    EXPECT_EQ(d.cuCtxSetCurrent(own), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SoftwareRestart, IsRefusedWhileAnotherThreadUsesAContext) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    const Driver& d = driver();
    Life life;
    std::atomic<int> step = 0;
    std::thread other([&] {
      EXPECT_EQ(d.cuCtxSetCurrent(life.primary), CUDA_SUCCESS);
      step = 1;
      while (step != 2) std::this_thread::yield();
      EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
      step = 3;
    });
    while (step != 1) std::this_thread::yield();
    EXPECT_EQ(SoftwareControls(driver().path).restart(), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS) << "nothing changed";
    step = 2;
    while (step != 3) std::this_thread::yield();
    EXPECT_EQ(SoftwareControls(driver().path).restart(), CUDA_SUCCESS);
    other.join();
  });
}

TEST(SoftwareRestart, InterruptsAnEndlessKernel) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    const Driver& d = driver();
    {
      Life life;
      void* flag = nullptr;
      EXPECT_EQ(d.cuMemAllocHost_v2(&flag, 4), CUDA_SUCCESS);
      *static_cast<unsigned*>(flag) = 0;
      void* arguments[] = {&flag};
      EXPECT_EQ(life.launch("hold", nullptr, arguments), CUDA_SUCCESS);
      EXPECT_EQ(life.launch("crash", nullptr, nullptr), CUDA_SUCCESS) << "never executed";
    }
    EXPECT_EQ(SoftwareControls(driver().path).restart(), CUDA_SUCCESS);
    Life life;
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

// The scheme of a sweep: each call fails once, in hundreds of lives of one process.
TEST(SoftwareRestart, RestartLetsEveryCallFailInTurn) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    const Driver& d = driver();
    const SoftwareControls c{driver().path};
    auto scenario = [&] {
      CUcontext primary = nullptr;
      CUdeviceptr address = 0;
      unsigned value = 0;
      if (CUresult s = d.cuInit(0)) return s;
      if (CUresult s = d.cuDevicePrimaryCtxRetain(&primary, 0)) return s;
      if (CUresult s = d.cuCtxSetCurrent(primary)) return s;
      if (CUresult s = d.cuMemAlloc_v2(&address, 4)) return s;
      if (CUresult s = d.cuMemsetD32_v2(address, 7, 1)) return s;
      if (CUresult s = d.cuMemcpyDtoH_v2(&value, address, 4)) return s;
      return value == 7 ? CUDA_SUCCESS : CUDA_ERROR_ASSERT;
    };
    c.start_counting();
    EXPECT_EQ(scenario(), CUDA_SUCCESS);
    std::uint64_t calls = c.call_count("*");
    EXPECT_EQ(calls, 6u);
    for (int round = 0; round < 20; ++round)
      for (CUresult status :
           {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_CONTEXT_IS_DESTROYED})
        for (std::uint64_t k = 1; k <= calls; ++k) {
          // A life whose cuInit failed needs no end.
          CUresult ended = static_cast<CUresult>(c.restart());
          EXPECT_TRUE(ended == CUDA_SUCCESS || ended == CUDA_ERROR_NOT_INITIALIZED) << ended;
          c.start_counting();
          EXPECT_EQ(c.fail_call("*", k, status), 0);
          EXPECT_EQ(scenario(), status) << k;
        }
    EXPECT_EQ(c.restart(), CUDA_SUCCESS);
    c.stop_counting();
    EXPECT_EQ(scenario(), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace ctxbroker::test
