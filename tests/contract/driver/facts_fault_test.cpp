// SPDX-License-Identifier: Apache-2.0
// A faulting kernel ends CUDA for its whole process, whatever context it ran in. Each test that has
// one runs in a child process.
#include <atomic>
#include <string>
#include <thread>
#include <tuple>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

enum class Where { primary, private_context, green };

struct Fault {
  const char* kernel;
  CUresult status;
};

// One context of each kind on a device, each able to launch.
struct Three {
  const Driver& d = driver();
  CUdevice device;
  CUcontext primary = nullptr, own = nullptr, light = nullptr;
  Green green;
  CUmodule modules[2] = {}, own_modules[2] = {};

  explicit Three(CUdevice ordinal = 0) : device(ordinal) {
    CUcontext popped = nullptr;
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    load(modules);
    green = make_green(device, {all_multiprocessors(device)});
    light = green.context;
    EXPECT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
    load(own_modules);
    EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  }
  void load(CUmodule* into) const {
    EXPECT_EQ(d.cuModuleLoadData(&into[0], kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleLoadData(&into[1], facts_ptx), CUDA_SUCCESS);
  }
  CUcontext at(Where where) const {
    return where == Where::primary ? primary : where == Where::green ? light : own;
  }
  CUresult launch(Where where, const char* name) const {
    Current entered(at(where));
    const CUmodule* from = where == Where::private_context ? own_modules : modules;
    CUfunction function = nullptr;
    CUresult status = d.cuModuleGetFunction(&function, from[0], name);
    if (status == CUDA_ERROR_NOT_FOUND) status = d.cuModuleGetFunction(&function, from[1], name);
    if (status != CUDA_SUCCESS) return status;
    return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  CUresult synchronize(Where where) const {
    Current entered(at(where));
    return d.cuCtxSynchronize();
  }
  // Nothing that needs the device works in this context any more.
  void expect_ended(Where where, CUresult status) const {
    Current entered(at(where));
    CUdeviceptr address = 0;
    CUstream stream = nullptr;
    CUmodule loaded = nullptr;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 64), status);
    EXPECT_EQ(d.cuStreamCreate(&stream, 0), status);
    EXPECT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), status);
    EXPECT_EQ(d.cuCtxSynchronize(), status);
  }
};

constexpr Where everywhere[] = {Where::primary, Where::private_context, Where::green};

class FaultFacts : public testing::TestWithParam<std::tuple<Where, Fault>> {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

TEST_P(FaultFacts, FaultIsTheErrorOfEveryContext) {
  const auto [where, fault] = GetParam();
  expect_in_child([where = where, fault = fault] {
    ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    const Three contexts;
    for (Where one : everywhere) {
      EXPECT_EQ(contexts.launch(one, "empty"), CUDA_SUCCESS);
      EXPECT_EQ(contexts.synchronize(one), CUDA_SUCCESS);
    }
    EXPECT_EQ(contexts.launch(where, fault.kernel), CUDA_SUCCESS);
    EXPECT_EQ(contexts.synchronize(where), fault.status);
    for (Where one : everywhere) contexts.expect_ended(one, fault.status);
  });
}

std::string name_of(const testing::TestParamInfo<std::tuple<Where, Fault>>& info) {
  const auto& [where, fault] = info.param;
  const std::string kernel = fault.kernel;
  return std::string(kernel == "crash"  ? "AnIllegalAddress"
                     : kernel == "trap" ? "ATrap"
                                        : "AnAssert") +
         (where == Where::primary ? "InThePrimary"
          : where == Where::green ? "InAGreenContext"
                                  : "InAPrivateContext");
}

INSTANTIATE_TEST_SUITE_P(
    , FaultFacts,
    testing::Combine(testing::ValuesIn(everywhere),
                     testing::Values(Fault{"crash", CUDA_ERROR_ILLEGAL_ADDRESS},
                                     Fault{"trap", CUDA_ERROR_LAUNCH_FAILED},
                                     Fault{"fail_assertion", CUDA_ERROR_ASSERT})),
    name_of);

class AfterAFault : public testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

TEST_F(AfterAFault, ContextsCanBeDestroyedAndNoneCanBeMade) {
  expect_in_child([] {
    const Driver& d = driver();
    ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
    const Three contexts;
    EXPECT_EQ(contexts.launch(Where::private_context, "crash"), CUDA_SUCCESS);
    EXPECT_EQ(contexts.synchronize(Where::private_context), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuCtxDestroy_v2(contexts.own), CUDA_SUCCESS);
    destroy_green(contexts.green);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    CUcontext made = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&made, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&made, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

class TwoDevices : public AfterAFault {
 protected:
  void SetUp() override {
    AfterAFault::SetUp();
    int count = 0;
    if (IsSkipped()) return;
    ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(driver().cuDeviceGetCount(&count), CUDA_SUCCESS);
    if (count < 2) GTEST_SKIP() << "needs two devices; this machine has " << count;
  }
};

TEST_F(TwoDevices, FaultOnOneDeviceEndsTheOther) {
  expect_in_child([] {
    const Three first(0), second(1);
    EXPECT_EQ(second.launch(Where::primary, "empty"), CUDA_SUCCESS);
    EXPECT_EQ(second.synchronize(Where::primary), CUDA_SUCCESS);
    EXPECT_EQ(first.launch(Where::primary, "crash"), CUDA_SUCCESS);
    EXPECT_EQ(first.synchronize(Where::primary), CUDA_ERROR_ILLEGAL_ADDRESS);
    for (Where one : everywhere) second.expect_ended(one, CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

// cuMemFree waits for the work of the memory's own device, and for no other's.
TEST_F(TwoDevices, WriteToFreedMemoryOfTheOtherDeviceEndsBoth) {
  for (const bool by_kernel : {true, false}) {
    expect_in_child([by_kernel] {
      const Driver& d = driver();
      const Three first(0), second(1);
      constexpr std::size_t bytes = std::size_t(4) << 20;  // pages of its own
      int reaches = 0;
      ASSERT_EQ(d.cuDeviceCanAccessPeer(&reaches, 0, 1), CUDA_SUCCESS);
      if (reaches == 0) return;  // then there is no such write
      CUdeviceptr freed = 0;
      {
        Current entered(second.primary);
        ASSERT_EQ(d.cuMemAlloc_v2(&freed, bytes), CUDA_SUCCESS);
      }
      std::atomic<bool> let_go = false;
      {
        Current entered(first.primary);
        ASSERT_EQ(d.cuCtxEnablePeerAccess(second.primary, 0), CUDA_SUCCESS);
        CUfunction fill = nullptr;
        ASSERT_EQ(d.cuModuleGetFunction(&fill, first.modules[0], "fill"), CUDA_SUCCESS);
        auto wait = [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
        };
        ASSERT_EQ(d.cuLaunchHostFunc(nullptr, wait, &let_go), CUDA_SUCCESS);
        unsigned value = 3, count = 1;
        void* arguments[] = {&freed, &value, &count};
        ASSERT_EQ(by_kernel
                      ? d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr)
                      : d.cuMemsetD8Async(freed, 3, bytes, nullptr),
                  CUDA_SUCCESS);
      }
      EXPECT_EQ(d.cuMemFree_v2(freed), CUDA_SUCCESS);
      let_go = true;
      EXPECT_EQ(first.synchronize(Where::primary), CUDA_ERROR_ILLEGAL_ADDRESS);
      for (Where one : everywhere) second.expect_ended(one, CUDA_ERROR_ILLEGAL_ADDRESS);
    });
  }
}

TEST_F(TwoDevices, ResetOfOneDeviceLeavesTheOtherAlone) {
  expect_in_child([] {
    const Driver& d = driver();
    const Three first(0), second(1);
    destroy_green(first.green);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(1), CUDA_ERROR_NOT_PERMITTED)
        << "the second device's own green context guards it";
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS)
        << "the second device's does not guard the first";
    unsigned flags = 0;
    int active[2] = {-1, -1};
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(d.cuDevicePrimaryCtxGetState(i, &flags, &active[i]), CUDA_SUCCESS);
    EXPECT_EQ(active[0], 0);
    EXPECT_EQ(active[1], 1);
    for (Where one : everywhere) {
      EXPECT_EQ(second.launch(one, "empty"), CUDA_SUCCESS);
      EXPECT_EQ(second.synchronize(one), CUDA_SUCCESS);
    }
  });
}

}  // namespace
}  // namespace ctxbroker::test
