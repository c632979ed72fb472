// SPDX-License-Identifier: Apache-2.0
// Calls that are made to fail, and counted.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker::test {
namespace {

class SoftwareFailure : public KernelTest {
 protected:
  void TearDown() override {
    c.stop_counting();
    KernelTest::TearDown();
  }
  CUresult allocate() const {
    CUdeviceptr address = 0;
    CUresult status = d.cuMemAlloc_v2(&address, 4);
    if (status == CUDA_SUCCESS) {
      EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
    }
    return status;
  }
  void* look_up(const char* name) const { return dlsym(d.library, name); }
  const SoftwareControls c{driver().path};
};

TEST_F(SoftwareFailure, CountsEveryCallOnceByName) {
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  c.start_counting();
  EXPECT_EQ(c.call_count(nullptr), 0u);
  unsigned free = 0, total = 0;
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE) << "a call that fails counts too";
  auto old_info = reinterpret_cast<decltype(&::cuMemGetInfo)>(look_up("cuMemGetInfo"));
  EXPECT_EQ(old_info(&free, &total), CUDA_SUCCESS) << "it calls no other that would count";
  auto unsupported = reinterpret_cast<CUresult (*)()>(look_up("cuTexObjectCreate"));
  EXPECT_EQ(unsupported(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(c.call_count("*"), 5u);
  EXPECT_EQ(c.call_count("cuMemAlloc_v2"), 1u);
  EXPECT_EQ(c.call_count("cuMemFree_v2"), 2u);
  EXPECT_EQ(c.call_count("cuMemGetInfo_v2"), 0u);
  EXPECT_EQ(c.call_count("cuTexObjectCreate"), 1u);
  c.stop_counting();
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(c.call_count(nullptr), 0u);
}

TEST_F(SoftwareFailure, CountsCallsOfManyThreads) {
  c.start_counting();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      CUcontext current = nullptr;
      for (int k = 0; k < 1000; ++k) d.cuCtxGetCurrent(&current);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(c.call_count("cuCtxGetCurrent"), 4000u);
}

TEST_F(SoftwareFailure, FailsTheNthCallOfANameOnce) {
  EXPECT_EQ(c.fail_call("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_EQ(c.failed_call(), nullptr);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(c.failed_call(), "cuMemAlloc_v2");
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(SoftwareFailure, FailsTheNthCallOfAll) {
  EXPECT_EQ(c.fail_call("*", 3, CUDA_ERROR_UNKNOWN), 0);
  EXPECT_EQ(allocate(), CUDA_SUCCESS) << "two calls";
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
  EXPECT_STREQ(c.failed_call(), "cuCtxSynchronize");
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(c.fail_call(nullptr, 1, CUDA_ERROR_NOT_SUPPORTED), 0);
  c.start_counting();
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS) << "what has not come yet is forgotten";
}

// Each before it looks at anything else: its arguments are nothing but zeros.
TEST_F(SoftwareFailure, FailsEachOfTheDriversCalls) {
  using Call = CUresult (*)(long, long, long, long, long, long, long, long, long, long, long, long);
  const struct {
    const char* name;
    int version;
  } rows[] = {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) {#symbol, version},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
  };
  for (const auto& [name, version] : rows) {
    if (version > driver_version()) continue;  // it lacks this
    auto call = reinterpret_cast<Call>(look_up(name));
    ASSERT_NE(call, nullptr) << name;
    c.start_counting();
    ASSERT_EQ(c.fail_call(name, 1, CUDA_ERROR_TIMEOUT), 0) << name;
    EXPECT_EQ(call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), CUDA_ERROR_TIMEOUT) << name;
    EXPECT_STREQ(c.failed_call(), name);
    EXPECT_EQ(c.call_count(nullptr), 1u) << name;
  }
}

TEST_F(SoftwareFailure, FailCallRefusesUnknownNamesNumbersAndStatuses) {
  EXPECT_EQ(c.fail_call("cuMemAllok", 1, CUDA_ERROR_UNKNOWN), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(c.fail_call("cuMemAlloc_v2", 0, CUDA_ERROR_UNKNOWN), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(c.fail_call("cuMemAlloc_v2", 1, CUDA_SUCCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(c.fail_call("cuMemAlloc_v2", 1, 12345), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(SoftwareFailure, ADestroyedPrivateContextIsDestroyed) {
  CUcontext own = nullptr, current = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
  EXPECT_EQ(c.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, own) << "the dead one stays on the stack";
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(), CUDA_SUCCESS) << "the primary is another context";
  EXPECT_EQ(d.cuCtxDestroy_v2(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(SoftwareFailure, ADestroyedPrimaryIsAsResetBehindEverybodysBack) {
  unsigned long long before = 0, after = 0;
  ASSERT_EQ(d.cuCtxGetId(primary, &before), CUDA_SUCCESS);
  EXPECT_EQ(c.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  CUcontext again = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(again, primary) << "the handle is used again";
  EXPECT_EQ(d.cuCtxGetId(again, &after), CUDA_SUCCESS);
  EXPECT_NE(after, before);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

TEST(SoftwareFailures, FailuresOfTheEnvironmentComeInTheirTurn) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_FAIL",
           "cuDeviceGet:2=CUDA_ERROR_UNKNOWN,*:3=CUDA_ERROR_OUT_OF_MEMORY", 1);
    const Driver& d = driver();
    CUdevice device = 0;
    int count = 0;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDeviceGetCount(&count), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(d.cuDeviceGet(&device, 0), CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(d.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    EXPECT_EQ(SoftwareControls(driver().path).call_count("*"), 5u);
  });
}

TEST(SoftwareFailures, BadFailureInTheEnvironmentIsReported) {
  CTXB_REQUIRE_DEVICE();
  for (const char* text : {"cuMemAlloc_v2", "cuMemAlloc_v2:3", "cuMemAllok:1=CUDA_ERROR_UNKNOWN",
                           "cuInit:0=CUDA_ERROR_UNKNOWN", "cuInit:x=CUDA_ERROR_UNKNOWN",
                           "cuInit:1=CUDA_SUCCESS", "*:1=OUT_OF_MEMORY", "*:1=CUDA_ERROR_UNKNOWN,"})
    expect_in_child([&] {
      setenv("CTXBROKER_SOFTWARE_FAIL", text, 1);
      ::testing::internal::CaptureStderr();
      EXPECT_EQ(driver().cuInit(0), CUDA_ERROR_INVALID_VALUE) << text;
      std::string said = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(said.rfind("CTXBROKER_SOFTWARE_FAIL: '", 0), 0u) << said;
      int count = 0;
      EXPECT_EQ(driver().cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED) << text;
    });
}

}  // namespace
}  // namespace ctxbroker::test
