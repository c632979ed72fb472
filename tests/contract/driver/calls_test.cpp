// SPDX-License-Identifier: Apache-2.0
// Calls through pointers, of virtual functions and of functions that call themselves. What is asked
// here of limits and of calls that go wrong was asked of an H100 with driver 580 first.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view calls_ptx;
}

namespace ctxbroker::test {
namespace {

class CallsTest : public DriverTest {
 protected:
  static constexpr unsigned blocks = 2, threads = 50, all = blocks * threads;

  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string text(fixtures::calls_ptx);
    ASSERT_EQ(d.cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&out, all * 4 * sizeof(int)), CUDA_SUCCESS);
  }

  CUresult run(const char* name, void** arguments, unsigned grid = blocks,
               unsigned block = threads) {
    CUfunction function = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS) << name;
    const CUresult status =
        d.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, nullptr, arguments, nullptr);
    return status == CUDA_SUCCESS ? d.cuCtxSynchronize() : status;
  }

  template <class T>
  std::vector<T> read(std::size_t count) const {
    std::vector<T> values(count);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(values.data(), out, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  std::size_t limit(CUlimit which) const {
    std::size_t value = 0;
    EXPECT_EQ(d.cuCtxGetLimit(&value, which), CUDA_SUCCESS);
    return value;
  }

  CUmodule module = nullptr;
  CUdeviceptr out = 0;
};

TEST_F(CallsTest, IndirectCallsThroughTablesReachTheirFunctions) {
  int n = 11;
  void* arguments[] = {&out, &n};
  ASSERT_EQ(run("tables", arguments), CUDA_SUCCESS);
  const auto binary = [](int which, int a, int b) {
    return which == 0 ? a + b : which == 1 ? a - b : a * b;
  };
  const std::vector<int> results = read<int>(all);
  constexpr int in_constant[] = {2, 0, 1};
  for (int i = 0; i < static_cast<int>(all); ++i) {
    EXPECT_EQ(results[i], binary(i % 3, i, n) + 1000 * binary(in_constant[i % 5 % 3], n, i) +
                              binary(i % 2 != 0 ? 0 : 1, 7, i))
        << i;
  }
}

TEST_F(CallsTest, VirtualCallsReachObjectsOfAnEarlierLaunch) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&memory, 16 * all), CUDA_SUCCESS);
  int scale = 3;
  void* to_make[] = {&memory};
  void* to_measure[] = {&memory, &out, &scale};
  ASSERT_EQ(run("make_shapes", to_make), CUDA_SUCCESS);
  ASSERT_EQ(run("measure_shapes", to_measure), CUDA_SUCCESS);
  const std::vector<int> results = read<int>(all);
  for (int i = 0; i < static_cast<int>(all); ++i) {
    EXPECT_EQ(results[i], i % 3 == 0 ? 3 * i * i + 4 : 3 * (i * i * 355 / 113)) << i;
  }
  EXPECT_EQ(d.cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(CallsTest, IndirectCallThroughAHostsPointerReachesItsFunction) {
  void* to_give[] = {&out};
  ASSERT_EQ(run("give_pointers", to_give, 1, 1), CUDA_SUCCESS);
  std::vector<std::uint64_t> pointers = read<std::uint64_t>(2);
  const int expected[] = {8, 2};
  for (int i = 0; i < 2; ++i) {
    void* to_call[] = {&out, &pointers[static_cast<std::size_t>(i)]};
    ASSERT_EQ(run("call_pointer", to_call, 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(read<int>(1).front(), expected[i]);
  }
}

TEST_F(CallsTest, RecursiveCallsCompute) {
  void* arguments[] = {&out};
  ASSERT_EQ(run("recursion", arguments), CUDA_SUCCESS);
  const std::vector<int> results = read<int>(4 * all);
  constexpr int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55};
  for (int i = 0; i < static_cast<int>(all); ++i) {
    const int* own = &results[4 * static_cast<std::size_t>(i)];
    EXPECT_EQ(own[0], fibonacci[i % 11]);
    EXPECT_EQ(own[1], 2 * (i % 4) + 3);
    EXPECT_EQ(own[2], i % 9 % 2 == 0 ? 1 : 0);
    EXPECT_EQ(own[3], i % 13 * (i % 13 + 1) / 2);
  }
}

TEST_F(CallsTest, ALargerStackHoldsDeeperCalls) {
  ASSERT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 128 << 10), CUDA_SUCCESS);
  int depth = 1000;
  void* arguments[] = {&out, &depth};
  ASSERT_EQ(run("nested", arguments), CUDA_SUCCESS);
  int sum = 1 + 2;
  for (int n = 1; n <= depth; ++n) sum += n + n * n;
  for (const int result : read<int>(all)) EXPECT_EQ(result, sum);
  ASSERT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
}

TEST_F(CallsTest, StackLimitIsRoundedUpAndBounded) {
  EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), 1024U);
  const std::pair<std::size_t, std::size_t> steps[] = {
      {0, 0}, {1, 16}, {100, 112}, {1000, 1008}, {1025, 1040}, {256 << 10, 256 << 10}};
  for (const auto& [asked, set] : steps) {
    EXPECT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, asked), CUDA_SUCCESS) << asked;
    EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), set) << asked;
  }
  for (const std::size_t asked : {std::size_t{512} << 10, std::size_t{1} << 30}) {
    EXPECT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, asked), CUDA_ERROR_INVALID_VALUE) << asked;
    EXPECT_EQ(limit(CU_LIMIT_STACK_SIZE), std::size_t{256} << 10) << asked;
  }
  EXPECT_EQ(d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
}

// Each in a child process: nothing works after the fault.
class BadCallsTest : public ::testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }

  template <class T>
  static CUresult run(const char* name, T argument) {
    const Driver& d = driver();
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr out = 0;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(context), CUDA_SUCCESS);
    const std::string text(fixtures::calls_ptx);
    EXPECT_EQ(d.cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&out, 4096), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    void* arguments[] = {&out, &argument};
    EXPECT_EQ(d.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    return d.cuCtxSynchronize();
  }
};

// Other addresses are not asked: an H100 goes on with whatever lies there.
TEST_F(BadCallsTest, ANullPointerIsAnInvalidProgramCounter) {
  expect_in_child([] { EXPECT_EQ(run("call_pointer", std::uint64_t{0}), CUDA_ERROR_INVALID_PC); });
}

TEST_F(BadCallsTest, AStackThatIsTooSmallIsAnIllegalAddress) {
  expect_in_child([] { EXPECT_EQ(run("nested", 1000), CUDA_ERROR_ILLEGAL_ADDRESS); });
  expect_in_child([] { EXPECT_EQ(run("nested", 1 << 30), CUDA_ERROR_ILLEGAL_ADDRESS); });
}

}  // namespace
}  // namespace ctxbroker::test
