// SPDX-License-Identifier: Apache-2.0
// The driver's life in a process: before cuInit, at exit.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

TEST_F(ProcessTest, CallsBeforeInitFailExceptTheVersion) {
  expect_in_child([] {
    const Driver& d = driver();
    int number = 0;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CUstream stream = nullptr;
    unsigned flags = 0;
    EXPECT_EQ(d.cuDriverGetVersion(&number), CUDA_SUCCESS);
    EXPECT_GE(number, 12040);
    EXPECT_EQ(d.cuDriverGetVersion(nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(d.cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&context), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuMemFree_v2(0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuModuleUnload(nullptr), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuDevicePrimaryCtxGetState(0, &flags, &number), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(d.cuInit(1), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(ProcessTest, NamesItsErrors) {
  const Driver& d = driver();
  const char* text = nullptr;
  EXPECT_EQ(d.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(d.cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "invalid argument");
  EXPECT_EQ(d.cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

// Made before cuInit, so destroyed after the driver's own end.
struct LastWord {
  bool armed = false;
  ~LastWord() {
    if (!armed) return;
    CUdeviceptr address = 0;
    CUresult status = driver().cuMemAlloc_v2(&address, 4);
    if (status != CUDA_ERROR_DEINITIALIZED) _exit(7);
  }
};

TEST_F(ProcessTest, CallsAfterTheDriversEndFail) {
  expect_in_child([] {
    static LastWord last_word;
    const Driver& d = driver();
    CUcontext primary = nullptr;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    last_word.armed = true;
  });
}

TEST_F(ProcessTest, ExitWithWorkInFlightEnds) {
  expect_in_child([] {
    const Driver& d = driver();
    CUcontext primary = nullptr;
    CUmodule module = nullptr;
    CUfunction empty = nullptr;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&empty, module, "empty"), CUDA_SUCCESS);
    auto slow = [](void*) { usleep(100000); };
    EXPECT_EQ(d.cuLaunchHostFunc(nullptr, slow, nullptr), CUDA_SUCCESS);
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(d.cuLaunchKernel(empty, 8, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr),
                CUDA_SUCCESS);
  });
}

TEST_F(ProcessTest, CallsInAForkedChildFailAndDoNotHang) {
  expect_in_child([] {
    const Driver& d = driver();
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    CUcontext primary = nullptr;
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      CUdeviceptr address = 0;
      _exit(d.cuMemAlloc_v2(&address, 4) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS) << "the parent works on";
  });
}

}  // namespace
}  // namespace ctxbroker::test
