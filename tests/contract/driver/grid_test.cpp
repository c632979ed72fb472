// SPDX-License-Identifier: Apache-2.0
// Cooperative launches: blocks that wait for each other. What %envreg1 and %envreg2 hold, and when
// a launch is too large, was asked of an H100 with driver 580.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view grid_ptx;
}

namespace ctxbroker::test {
namespace {

class GridTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string text(fixtures::grid_ptx);
    ASSERT_EQ(d.cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&values, bytes), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&next, bytes), CUDA_SUCCESS);
  }

  CUfunction named(const char* name) const {
    CUfunction function = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS) << name;
    return function;
  }

  // Runs the rounds through `launch(function, blocks, threads, arguments)`, and checks the result.
  template <class Launch>
  void expect_rounds(unsigned blocks, unsigned threads, Launch launch) {
    std::vector<int> expected(blocks), last(blocks), results(blocks);
    for (unsigned i = 0; i < blocks; ++i) expected[i] = static_cast<int>(i * 7 % 11);
    ASSERT_EQ(d.cuMemcpyHtoD_v2(values, expected.data(), blocks * sizeof(int)), CUDA_SUCCESS);
    int rounds = 6;
    void* arguments[] = {&values, &next, &rounds};
    ASSERT_EQ(launch(named("rounds"), blocks, threads, arguments), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    for (int round = 0; round < rounds; ++round) {
      last.swap(expected);
      for (unsigned i = 0; i < blocks; ++i) {
        expected[i] = last[(i + 1) % blocks] + last[(i + blocks - 1) % blocks] + round;
      }
    }
    ASSERT_EQ(d.cuMemcpyDtoH_v2(results.data(), values, blocks * sizeof(int)), CUDA_SUCCESS);
    EXPECT_EQ(results, expected);
  }

  unsigned most_blocks(const char* name, int threads) const {
    int at_once = 0, multiprocessors = 0;
    EXPECT_EQ(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, named(name), threads, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(
        d.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
        CUDA_SUCCESS);
    return static_cast<unsigned>(at_once * multiprocessors);
  }

  static constexpr std::size_t bytes = 64 << 10;
  CUmodule module = nullptr;
  CUdeviceptr values = 0, next = 0;
};

TEST_F(GridTest, BlocksOfACooperativeLaunchWaitForEachOther) {
  for (const unsigned blocks : {1U, 2U, 40U}) {
    expect_rounds(blocks, 96, [&](CUfunction function, unsigned grid, unsigned block, void** all) {
      return d.cuLaunchCooperativeKernel(function, grid, 1, 1, block, 1, 1, 0, nullptr, all);
    });
  }
}

TEST_F(GridTest, LaunchAttributeMakesALaunchCooperative) {
  expect_rounds(12, 32, [&](CUfunction function, unsigned grid, unsigned block, void** all) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config = {};
    config.gridDimX = grid;
    config.blockDimX = block;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return d.cuLaunchKernelEx(&config, function, all, nullptr);
  });
}

TEST_F(GridTest, AllBlocksMustFitAtOnce) {
  int supported = 0;
  EXPECT_EQ(d.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
  const unsigned most = most_blocks("shared_tile", 1024);
  void* arguments[] = {&values};
  CUdeviceptr large = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&large, std::size_t{most} * 1024 * sizeof(int)), CUDA_SUCCESS);
  void* fitting[] = {&large};
  EXPECT_EQ(d.cuLaunchCooperativeKernel(named("shared_tile"), most, 1, 1, 1024, 1, 1, 0, nullptr,
                                        fitting),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  for (const unsigned blocks : {most + 1, 4 * most}) {
    EXPECT_EQ(d.cuLaunchCooperativeKernel(named("shared_tile"), blocks, 1, 1, 1024, 1, 1, 0,
                                          nullptr, arguments),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS) << "nothing ran";
  EXPECT_EQ(d.cuMemFree_v2(large), CUDA_SUCCESS);
}

TEST_F(GridTest, OnlyACooperativeLaunchHasAWorkspace) {
  std::uint64_t workspace = 1;
  void* arguments[] = {&values};
  const CUfunction environment = named("environment");
  ASSERT_EQ(d.cuLaunchKernel(environment, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemcpyDtoH_v2(&workspace, values, sizeof workspace), CUDA_SUCCESS);
  EXPECT_EQ(workspace, 0U);
  ASSERT_EQ(d.cuLaunchCooperativeKernel(environment, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemcpyDtoH_v2(&workspace, values, sizeof workspace), CUDA_SUCCESS);
  EXPECT_NE(workspace, 0U);
  EXPECT_EQ(workspace % 16, 0U);
}

TEST_F(GridTest, CapturedCooperativeLaunchStaysCooperative) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  expect_rounds(9, 64, [&](CUfunction function, unsigned blocks, unsigned block, void** all) {
    EXPECT_EQ(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchCooperativeKernel(function, blocks, 1, 1, block, 1, 1, 0, stream, all),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    return d.cuGraphLaunch(exec, stream);
  });
  EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
