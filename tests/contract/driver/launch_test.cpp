// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class LaunchTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuMemAlloc_v2(&buffer, 4096), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemsetD8_v2(buffer, 0, 4096), CUDA_SUCCESS);
  }
  std::vector<unsigned> read(std::size_t count) const {
    std::vector<unsigned> values(count);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(values.data(), buffer, count * 4), CUDA_SUCCESS);
    return values;
  }
  CUresult launch_sized(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared = 0) const {
    return d.cuLaunchKernel(function("empty"), gx, gy, gz, bx, by, bz, shared, nullptr, nullptr,
                            nullptr);
  }
  CUdeviceptr buffer = 0;
};

TEST_F(LaunchTest, RunsEveryThread) {
  EXPECT_EQ(fill(buffer, 42, 1000, nullptr), CUDA_SUCCESS);
  std::vector<unsigned> expected(1024, 0);
  std::fill_n(expected.begin(), 1000, 42u);
  EXPECT_EQ(read(1024), expected);
}

// A kernel works until the timer has advanced by so many nanoseconds, and says how far its two
// halves are from the whole.
TEST_F(LaunchTest, TheGlobalTimerCountsNanoseconds) {
  constexpr const char* text =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry wait(.param .u64 nanoseconds, .param .u64 result) {\n"
      "  .reg .pred %p;\n  .reg .b64 %rd<7>;\n  .reg .b32 %r<3>;\n"
      "  ld.param.u64 %rd1, [nanoseconds];\n  ld.param.u64 %rd2, [result];\n"
      "  mov.u64 %rd3, %globaltimer;\n"
      "again:\n  mov.u64 %rd4, %globaltimer;\n  sub.u64 %rd5, %rd4, %rd3;\n"
      "  setp.lt.u64 %p, %rd5, %rd1;\n  @%p bra again;\n"
      "  mov.u32 %r1, %globaltimer_lo;\n  mov.u32 %r2, %globaltimer_hi;\n"
      "  mov.b64 %rd6, {%r1, %r2};\n  sub.u64 %rd6, %rd6, %rd4;\n"
      "  st.global.u64 [%rd2], %rd6;\n  ret;\n}\n";
  CUmodule module = nullptr;
  CUfunction wait = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&module, text), CUDA_SUCCESS);
  ASSERT_EQ(d.cuModuleGetFunction(&wait, module, "wait"), CUDA_SUCCESS);
  constexpr std::chrono::nanoseconds given = std::chrono::milliseconds(200);
  std::uint64_t nanoseconds = static_cast<std::uint64_t>(given.count()), off = 0;
  void* arguments[] = {&nanoseconds, &buffer};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(d.cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, given * 99 / 100);
  ASSERT_EQ(d.cuMemcpyDtoH_v2(&off, buffer, sizeof off), CUDA_SUCCESS);
  EXPECT_LT(off, 1'000'000'000U) << "it went on by less than a second";
}

// The launches of CUDA 3, which set everything before.
TEST_F(LaunchTest, LaunchGridOfCuda3RunsEveryThread) {
  const CUfunction fill_function = function("fill");
  unsigned value = 7;
  EXPECT_EQ(d.cuFuncSetBlockShape(fill_function, 32, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuFuncSetSharedSize(fill_function, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuParamSetv(fill_function, 0, &buffer, sizeof buffer), CUDA_SUCCESS);
  EXPECT_EQ(d.cuParamSetv(fill_function, 8, &value, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(d.cuParamSeti(fill_function, 12, 40), CUDA_SUCCESS);
  EXPECT_EQ(d.cuParamSetSize(fill_function, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchGrid(fill_function, 2, 1), CUDA_SUCCESS);
  std::vector<unsigned> expected(64, 0);
  std::fill_n(expected.begin(), 40, 7u);
  EXPECT_EQ(read(64), expected);
  value = 9;
  EXPECT_EQ(d.cuParamSetv(fill_function, 8, &value, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLaunchGridAsync(fill_function, 1, 1, nullptr), CUDA_SUCCESS);
  std::fill_n(expected.begin(), 32, 9u);
  EXPECT_EQ(read(64), expected);
}

TEST_F(LaunchTest, ThreadsOfABlockShareMemory) {
  std::vector<unsigned> values(256);
  std::iota(values.begin(), values.end(), 1u);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(buffer, values.data(), 1024), CUDA_SUCCESS);
  CUdeviceptr out = buffer + 2048;
  unsigned count = 256;
  void* arguments[] = {&buffer, &out, &count};
  EXPECT_EQ(launch("shared_sum", nullptr, arguments, 1, 256), CUDA_SUCCESS);
  unsigned sum = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&sum, out, 4), CUDA_SUCCESS);
  EXPECT_EQ(sum, 256u * 257u / 2);
}

TEST_F(LaunchTest, CopiesItsArgumentsAtOnce) {
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  {
    Hold hold(function("hold"), stream);
    unsigned value = 11, count = 4;
    void* arguments[] = {&buffer, &value, &count};
    EXPECT_EQ(launch("fill", stream, arguments, 1, 32), CUDA_SUCCESS);
    value = 22;
    count = 0;
  }
  EXPECT_EQ(read(5), (std::vector<unsigned>{11, 11, 11, 11, 0}));
}

TEST_F(LaunchTest, TakesAPackedBuffer) {
  struct {
    CUdeviceptr address;
    unsigned value, count;
  } packed = {buffer, 9, 2};
  std::size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  auto launch_packed = [&](void** arguments) {
    return d.cuLaunchKernel(function("fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, extra);
  };
  EXPECT_EQ(launch_packed(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(read(3), (std::vector<unsigned>{9, 9, 0}));
  void* arguments[] = {&packed.address, &packed.value, &packed.count};
  EXPECT_EQ(launch_packed(arguments), CUDA_ERROR_INVALID_VALUE) << "both forms at once";
  bytes = 24;
  EXPECT_EQ(launch_packed(nullptr), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  extra[0] = reinterpret_cast<void*>(77);
  EXPECT_EQ(launch_packed(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, LaunchWithoutItsArgumentsIsRefused) {
  EXPECT_EQ(launch("fill", nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  void* end[] = {CU_LAUNCH_PARAM_END};
  EXPECT_EQ(d.cuLaunchKernel(function("fill"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, end),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLaunchKernel(function("empty"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, end),
            CUDA_SUCCESS);
  EXPECT_EQ(launch("empty", nullptr, nullptr), CUDA_SUCCESS);
}

TEST_F(LaunchTest, LaunchOfBadSizesIsRefused) {
  EXPECT_EQ(d.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch_sized(0, 1, 1, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 1, 1, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 1, 1, 1025, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 1, 1, 1024, 2, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 1, 1, 1, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 65536, 1, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(1, 1, 65536, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(0x80000000u, 1, 1, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sized(2, 3, 4, 8, 8, 16), CUDA_SUCCESS);
}

TEST_F(LaunchTest, MoreDynamicSharedMemoryMustBeAskedFor) {
  CUfunction empty = function("empty");
  EXPECT_EQ(launch_sized(1, 1, 1, 1, 1, 1, 49152), CUDA_SUCCESS);
  EXPECT_EQ(launch_sized(1, 1, 1, 1, 1, 1, 49153), CUDA_ERROR_INVALID_VALUE);
  auto most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(d.cuFuncSetAttribute(empty, most, 60000), CUDA_SUCCESS);
  EXPECT_EQ(launch_sized(1, 1, 1, 1, 1, 1, 60000), CUDA_SUCCESS);
  EXPECT_EQ(launch_sized(1, 1, 1, 1, 1, 1, 60001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(empty, most, 1 << 24), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(empty, most, -1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_EQ(d.cuFuncGetAttribute(&value, most, empty), CUDA_SUCCESS);
  EXPECT_EQ(value, 60000);
}

TEST_F(LaunchTest, FunctionTellsNameParametersAndAttributes) {
  CUfunction sum = function("shared_sum");
  const char* name = nullptr;
  EXPECT_EQ(d.cuFuncGetName(&name, sum), CUDA_SUCCESS);
  EXPECT_EQ(std::string(name), "shared_sum");
  std::size_t offset = 99, bytes = 99;
  EXPECT_EQ(d.cuFuncGetParamInfo(sum, 2, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(d.cuFuncGetParamInfo(sum, 1, &offset, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(d.cuFuncGetParamInfo(sum, 3, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_EQ(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, sum),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1024);
  EXPECT_EQ(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, sum), CUDA_SUCCESS);
  EXPECT_GE(value, 4096);
  EXPECT_EQ(d.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(999), sum),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetCacheConfig(sum, CU_FUNC_CACHE_PREFER_SHARED), CUDA_SUCCESS);
}

TEST_F(LaunchTest, ExtendedFormTakesAttributes) {
  unsigned value = 3, count = 2;
  void* arguments[] = {&buffer, &value, &count};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = -1;
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_EQ(d.cuLaunchKernelEx(&config, function("fill"), arguments, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(read(3), (std::vector<unsigned>{3, 3, 0}));
  attribute.id = static_cast<CUlaunchAttributeID>(99);
  EXPECT_EQ(d.cuLaunchKernelEx(&config, function("fill"), arguments, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLaunchKernelEx(nullptr, function("fill"), arguments, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, PerThreadFormUsesTheThreadsStream) {
  CUstream other = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&other, 0), CUDA_SUCCESS);
  Hold hold(function("hold"), other);
  EXPECT_EQ(d.cuLaunchKernel_ptsz(function("hold"), 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS) << "not behind the other stream";
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the legacy stream is";
}

TEST_F(LaunchTest, KnowsItsOccupancy) {
  CUfunction empty = function("empty");
  int blocks = 0, grid = 0, block = 0;
  EXPECT_EQ(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, 128, 0), CUDA_SUCCESS);
  EXPECT_GT(blocks, 0);
  EXPECT_EQ(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, 2000, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 0);
  EXPECT_EQ(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuOccupancyMaxPotentialBlockSize(&grid, &block, empty, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(block, 1024);
  EXPECT_GT(grid, 0);
  // More blocks do not leave more dynamic shared memory for each of them.
  std::size_t alone = 0, of_four = 0;
  EXPECT_EQ(d.cuOccupancyAvailableDynamicSMemPerBlock(&alone, empty, 1, 128), CUDA_SUCCESS);
  EXPECT_EQ(d.cuOccupancyAvailableDynamicSMemPerBlock(&of_four, empty, 4, 128), CUDA_SUCCESS);
  EXPECT_GT(of_four, 0u);
  EXPECT_LE(of_four, alone);
  EXPECT_EQ(d.cuOccupancyAvailableDynamicSMemPerBlock(&alone, empty, 0, 128),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace ctxbroker::test
