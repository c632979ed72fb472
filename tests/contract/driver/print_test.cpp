// SPDX-License-Identifier: Apache-2.0
// What kernels print: CUDA's device printf, as an H200 has it too.
#include <gmock/gmock.h>

#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view print_ptx;
}

namespace ctxbroker::test {
namespace {

CUmodule load_printing() {
  CUmodule module = nullptr;
  const std::string text(fixtures::print_ptx);
  EXPECT_EQ(driver().cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
  return module;
}

CUresult launch_printing(CUmodule module, const char* name, void** arguments, unsigned blocks = 1,
                         unsigned threads = 1) {
  CUfunction function = nullptr;
  const CUresult status = driver().cuModuleGetFunction(&function, module, name);
  if (status != CUDA_SUCCESS) return status;
  return driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, nullptr, arguments,
                                 nullptr);
}

class PrintTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    module = load_printing();
    ASSERT_EQ(d.cuMemAlloc_v2(&returned, sizeof(int) * 9), CUDA_SUCCESS);
  }

  std::vector<int> read_returned(std::size_t count) const {
    std::vector<int> values(count);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(values.data(), returned, count * sizeof(int)), CUDA_SUCCESS);
    return values;
  }

  CUmodule module = nullptr;
  CUdeviceptr returned = 0;
};

TEST_F(PrintTest, PrintedLinesOfManyThreadsAreWhole) {
  int threads = 500;
  void* arguments[] = {&threads};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(launch_printing(module, "lines", arguments, 4, 128), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  std::istringstream printed(::testing::internal::GetCapturedStdout());
  std::vector<std::string> lines, expected;
  for (std::string line; std::getline(printed, line);) lines.push_back(line);
  for (int i = 0; i < threads; ++i) {
    char line[64];
    std::snprintf(line, sizeof(line), "thread %d of 500: %.2f", i, i * 0.25);
    expected.emplace_back(line);
  }
  EXPECT_THAT(lines, ::testing::UnorderedElementsAreArray(expected));
}

TEST_F(PrintTest, PrintedValuesOfAllTypesAreFormatted) {
  int x = 42;
  long long big = -5000000000;
  float f = 1.25F;
  void* arguments[] = {&x, &big, &f, &returned};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(launch_printing(module, "values", arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "plain\n"
            "42 -42 42 52 ff FF 0xff q %\n"
            "-5000000000 -5000000000 7 fffffffed5fa0e00 42\n"
            "1.250000 1.000000e+10 1.000000E+10 1e-05 1E-10 0x1p+0 1.500000\n"
            "[ 1.50|42    |+42|00002a| 42|+042|42      ]\n"
            "[     42|42    |42]\n"
            "42 42 ffff\n"
            "[    a|b    ] 0x1234 (nil)\n");
  EXPECT_EQ(read_returned(9), (std::vector<int>{0, 8, 5, 7, 7, 5, 3, 4, -1}));
}

TEST_F(PrintTest, StringsMayLieAnywhereInDeviceMemory) {
  CUdeviceptr text = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&text, 5), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemcpyHtoD_v2(text, "text", 5), CUDA_SUCCESS);
  void* arguments[] = {&text, &returned};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(launch_printing(module, "strings", arguments, 1, 33), CUDA_SUCCESS);
  // A copy that waits shows what was printed, as all waiting does.
  const std::vector<int> values = read_returned(4);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "text literal locat\nglobal constant shared\n"
            "[    text|text    |te|      te|     text]\n[(null)||  (null)]\n");
  EXPECT_EQ(values, (std::vector<int>{3, 3, 6, 3}));
}

TEST_F(PrintTest, EveryWayToWaitShowsWhatWasPrinted) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&function, module, "lines"), CUDA_SUCCESS);
  int threads = 1;
  void* arguments[] = {&threads};
  const auto shown_by = [&](const std::function<CUresult()>& wait) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string line = "thread 0 of 1: 0.00\n";
  EXPECT_EQ(shown_by([&] { return d.cuStreamSynchronize(stream); }), line);
  EXPECT_EQ(shown_by([&] { return d.cuCtxSynchronize(); }), line);
  EXPECT_EQ(shown_by([&] {
              EXPECT_EQ(d.cuEventRecord(event, stream), CUDA_SUCCESS);
              return d.cuEventSynchronize(event);
            }),
            line);
  EXPECT_EQ(shown_by([&] { return d.cuModuleUnload(module); }), line);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

class PrintFaultTest : public ::testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }

  // In a process of its own, since the fault ends CUDA there.
  static void expect_shown(const char* kernel) {
    expect_in_child([=] {
      const Driver& d = driver();
      CUcontext primary = nullptr;
      EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      CUmodule module = load_printing();
      CUdeviceptr nowhere = 16;
      void* arguments[] = {&nowhere};
      ::testing::internal::CaptureStdout();
      EXPECT_EQ(launch_printing(module, kernel, arguments), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(::testing::internal::GetCapturedStdout(), "before\n");
    });
  }
};

TEST_F(PrintFaultTest, WhatWasPrintedBeforeAFaultIsShown) {
  expect_shown("crash_after");
}

TEST_F(PrintFaultTest, AnIllegalStringIsAnIllegalAddress) {
  expect_shown("illegal_string");
}

}  // namespace
}  // namespace ctxbroker::test
