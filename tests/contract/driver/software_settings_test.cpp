// SPDX-License-Identifier: Apache-2.0
// What the environment sets of the software device.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

int attribute(CUdevice_attribute which) {
  int value = 0;
  EXPECT_EQ(driver().cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
  return value;
}

std::string device_name() {
  char name[64] = {};
  EXPECT_EQ(driver().cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  return name;
}

TEST(SoftwareSettings, NameCapabilityAndMultiprocessorsAreWhatTheEnvironmentSays) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_NAME", "a small one", 1);
    setenv("CTXBROKER_SOFTWARE_COMPUTE", "12.1", 1);
    setenv("CTXBROKER_SOFTWARE_MULTIPROCESSORS", "20", 1);
    const Driver& d = driver();
    ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(device_name(), "a small one");
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 12);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 1);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 20);
    CUdevResource all = {}, remaining = {};
    ASSERT_EQ(d.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    EXPECT_EQ(all.sm.smCount, 20U);
    CUdevResource group = {};
    unsigned int groups = 1;
    ASSERT_EQ(d.cuDevSmResourceSplitByCount(&group, &groups, &all, &remaining, 0, 8), CUDA_SUCCESS);
    EXPECT_EQ(group.sm.smCount, 8U);
    EXPECT_EQ(remaining.sm.smCount, 12U);
  });
}

TEST(SoftwareSettings, BadSettingsLeaveTheDefaults) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_COMPUTE", "6.1", 1);
    setenv("CTXBROKER_SOFTWARE_MULTIPROCESSORS", "many", 1);
    setenv("CTXBROKER_SOFTWARE_NAME", "", 1);
    ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
    EXPECT_EQ(device_name(), "ctxbroker software device");
  });
}

TEST(SoftwareSettings, AProcessIsAnMpsClientWhereItLooksForTheServer) {
  CTXB_REQUIRE_DEVICE();
  const auto is_client = [](const char* server, const char* looked_at, int expected) {
    expect_in_child([&] {
      unsetenv("CUDA_MPS_PIPE_DIRECTORY");
      if (looked_at != nullptr) setenv("CUDA_MPS_PIPE_DIRECTORY", looked_at, 1);
      if (server != nullptr) setenv("CTXBROKER_SOFTWARE_MPS", server, 1);
      ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
      EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED), expected);
    });
  };
  is_client(nullptr, nullptr, 0);
  is_client("/tmp/nvidia-mps", nullptr, 1);
  is_client("/run/own", nullptr, 0);
  is_client("/run/own", "/run/own", 1);
  is_client("/tmp/nvidia-mps", "/dev/null", 0);
}

std::string empty_kernel(int target) {
  return ".version 9.0\n.target sm_" + std::to_string(target) +
         "\n.address_size 64\n.visible .entry k() { ret; }";
}

// PTX is for its target and newer ones. The capability of the device decides what it takes, as on
// a GPU, up to the newest that CUDA 13.0 knows.
TEST(SoftwareSettings, TheCapabilityDecidesWhichPtxIsTaken) {
  CTXB_REQUIRE_DEVICE();
  const int targets[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
  for (const int own : targets) {
    expect_in_child([&] {
      const std::string compute = std::to_string(own / 10) + "." + std::to_string(own % 10);
      setenv("CTXBROKER_SOFTWARE_COMPUTE", compute.c_str(), 1);
      const Driver& d = driver();
      CUcontext context = nullptr;
      ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
      ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
      ASSERT_EQ(d.cuCtxSetCurrent(context), CUDA_SUCCESS);
      for (const int target : targets) {
        char log[512] = {};
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
        CUmodule module = nullptr;
        EXPECT_EQ(d.cuModuleLoadDataEx(&module, empty_kernel(target).c_str(), 2, options, values),
                  target <= own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX)
            << target << " on " << own << ": " << log;
        const std::string advice = "build it with -arch=compute_" + std::to_string(own);
        EXPECT_EQ(std::string(log).find(advice) != std::string::npos, target > own) << log;
      }
    });
  }
}

// Each on its own, with the values that people get wrong; and what is used instead.
TEST(SoftwareSettings, BadSettingIsReportedWithItsDefault) {
  CTXB_REQUIRE_DEVICE();
  const std::pair<const char*, std::vector<const char*>> wrong[] = {
      {"DEVICES", {"two", "-1", "17", "1.5", "99999999999999999999"}},
      {"THREADS", {"0", "-4", "all", "4096"}},
      {"MEMORY", {"0", "-1", "8GiB", "1e9", "17592186044417", "99999999999999999999"}},
      {"COMPUTE", {"75", "0", "-9.0", "9", "99.0", "sm_90"}},
      {"MULTIPROCESSORS", {"0", "-132", "257", "many"}},
      {"CPU", {"sse2", "0", "AVX2"}},
  };
  for (const auto& [name, values] : wrong) {
    for (const char* const value : values) {
      const std::string variable = std::string("CTXBROKER_SOFTWARE_") + name;
      SCOPED_TRACE(variable + "=" + value);
      expect_in_child([&] {
        setenv(variable.c_str(), value, 1);
        ::testing::internal::CaptureStderr();
        ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
        const std::string said = ::testing::internal::GetCapturedStderr();
        EXPECT_EQ(said.find(variable + "=" + value + " is not "), 0U) << said;
        EXPECT_NE(said.find("used\n"), std::string::npos) << said;
        int count = 0;
        EXPECT_EQ(driver().cuDeviceGetCount(&count), CUDA_SUCCESS);
        EXPECT_EQ(count, 1);
      });
    }
  }
}

// One with nothing to say: the test above sees nothing else on stderr.
TEST(SoftwareSettings, GoodSettingsAreNotReported) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 1);
    setenv("CTXBROKER_SOFTWARE_MEMORY", "1048576", 1);
    setenv("CTXBROKER_SOFTWARE_CPU", "baseline", 1);
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  });
}

}  // namespace
}  // namespace ctxbroker::test
