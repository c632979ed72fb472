// SPDX-License-Identifier: Apache-2.0
// What is left of CUDA in a process after a kernel's fault. Each test runs in a child process.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

// Everything is made by the child itself.
class FaultTest : public ::testing::Test {
 protected:
  struct Made {
    const Driver& d = driver();
    CUdevice device = 0;
    CUcontext primary = nullptr, other = nullptr;
    CUmodule module = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr memory = 0;

    Made() {
      EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
      EXPECT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
    }
    CUresult launch(const char* name) const {
      CUfunction function = nullptr;
      CUresult status = d.cuModuleGetFunction(&function, module, name);
      if (status != CUDA_SUCCESS) return status;
      return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    }
  };

  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

TEST_F(FaultTest, IllegalAddressIsTheErrorOfEveryLaterCall) {
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS) << "the launch itself is accepted";
    constexpr CUresult fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_EQ(d.cuStreamSynchronize(made.stream), fault);
    CUdeviceptr address = 0;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    std::size_t free = 0, total = 0;
    EXPECT_EQ(d.cuStreamQuery(made.stream), fault);
    EXPECT_EQ(d.cuEventQuery(made.event), fault);
    EXPECT_EQ(d.cuEventRecord(made.event, made.stream), fault);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), fault);
    EXPECT_EQ(d.cuMemFree_v2(made.memory), fault);
    EXPECT_EQ(d.cuMemGetInfo_v2(&free, &total), fault);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&address, made.memory, 4), fault);
    EXPECT_EQ(d.cuCtxSynchronize(), fault);
    EXPECT_EQ(d.cuStreamCreate(&stream, 0), fault);
    EXPECT_EQ(d.cuEventCreate(&event, 0), fault);
    EXPECT_EQ(d.cuModuleUnload(made.module), fault);
    EXPECT_EQ(made.launch("empty"), fault);
    EXPECT_EQ(d.cuStreamDestroy_v2(made.stream), fault);
  });
}

TEST_F(FaultTest, FaultReachesOtherContextsAndThreads) {
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(made.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUresult elsewhere = CUDA_SUCCESS;
    std::thread([&] {
      CUdeviceptr address = 0;
      d.cuCtxSetCurrent(made.other);
      elsewhere = d.cuMemAlloc_v2(&address, 4);
    }).join();
    EXPECT_EQ(elsewhere, CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(FaultTest, LeavesTheContextStackAndTheDevicesWorking) {
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUcontext context = nullptr;
    CUdevice device = 0;
    int value = 0;
    unsigned long long id = 0;
    EXPECT_EQ(d.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(made.primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxPushCurrent_v2(made.other), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxGetId(made.primary, &id), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDeviceGetCount(&value), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDriverGetVersion(&value), CUDA_SUCCESS);
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
  });
}

TEST_F(FaultTest, HasNoRecoveryInTheProcess) {
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuCtxDestroy_v2(made.other), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(FaultTest, ATrapIsALaunchFailure) {
  expect_in_child([] {
    Made made;
    EXPECT_EQ(made.launch("trap"), CUDA_SUCCESS);
    EXPECT_EQ(made.d.cuStreamSynchronize(made.stream), CUDA_ERROR_LAUNCH_FAILED);
    CUcontext context = nullptr;
    EXPECT_EQ(made.d.cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_LAUNCH_FAILED);
  });
}

// The kernel fails an assertion in the way in which nvcc writes assert(). The work ends with a
// status of its own, and stderr shows what failed where.
TEST_F(FaultTest, AFailedAssertIsItsOwnErrorAndSaysWhatFailed) {
  expect_in_child([] {
    static const char* const text = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 expression[6] = {120, 32, 60, 32, 55};
.global .align 1 .b8 file[5] = {97, 46, 99, 117};
.global .align 1 .b8 name[4] = {107, 40, 41};
.visible .entry check()
{
  .reg .b64 %rd<7>;
  mov.u64 %rd1, expression;
  cvta.global.u64 %rd2, %rd1;
  mov.u64 %rd3, file;
  cvta.global.u64 %rd4, %rd3;
  mov.u64 %rd5, name;
  cvta.global.u64 %rd6, %rd5;
  {
    .param .b64 param0;
    st.param.b64 [param0+0], %rd2;
    .param .b64 param1;
    st.param.b64 [param1+0], %rd4;
    .param .b32 param2;
    st.param.b32 [param2+0], 33;
    .param .b64 param3;
    st.param.b64 [param3+0], %rd6;
    .param .b64 param4;
    st.param.b64 [param4+0], 1;
    call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
  ret;
}
)";
    Made made;
    const Driver& d = made.d;
    CUfunction check = nullptr;
    EXPECT_EQ(d.cuModuleLoadData(&made.module, text), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&check, made.module, "check"), CUDA_SUCCESS);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(d.cuLaunchKernel(check, 1, 1, 1, 1, 1, 1, 0, made.stream, nullptr, nullptr),
              CUDA_SUCCESS);
    CUresult status = d.cuStreamSynchronize(made.stream);
    std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, CUDA_ERROR_ASSERT);
    EXPECT_NE(said.find("a.cu:33: k(): block: [0,0,0], thread: [0,0,0] Assertion `x < 7` failed."),
              std::string::npos)
        << said;
    CUcontext context = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_ASSERT);
  });
}

TEST_F(FaultTest, EndsEndlessKernelsToo) {
  if (!driver().is_software) GTEST_SKIP() << "NVIDIA's driver lets them run on, and waits for them";
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    CUfunction hold = nullptr;
    CUstream held = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&held, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&hold, made.module, "hold"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD32_v2(made.memory, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    void* arguments[] = {&made.memory};
    EXPECT_EQ(d.cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, held, arguments, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(held), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(FaultTest, WakesWhoWaitsInAnotherStream) {
  expect_in_child([] {
    Made made;
    const Driver& d = made.d;
    CUstream waiting = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    std::atomic<bool> let_go = false;
    auto hold = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    EXPECT_EQ(d.cuLaunchHostFunc(made.stream, hold, &let_go), CUDA_SUCCESS);
    EXPECT_EQ(made.launch("crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventRecord(made.event, made.stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(waiting, made.event, 0), CUDA_SUCCESS);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      let_go = true;
    });
    EXPECT_EQ(d.cuStreamSynchronize(waiting), CUDA_ERROR_ILLEGAL_ADDRESS);
    later.join();
  });
}

}  // namespace
}  // namespace ctxbroker::test
