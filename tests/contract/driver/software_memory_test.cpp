// What the software device promises about memory beyond what drivers do.
#include <cstdlib>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

using SoftwareMemoryTest = KernelTest;

TEST_F(SoftwareMemoryTest, NewMemoryIsNotZero) {
  for (std::size_t bytes : {std::size_t(1), std::size_t(4096), std::size_t(3) << 20}) {
    CUdeviceptr address = 0;
    ASSERT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    std::vector<unsigned char> data(bytes);
    ASSERT_EQ(d.cuMemcpyDtoH_v2(data.data(), address, bytes), CUDA_SUCCESS);
    EXPECT_EQ(data, std::vector<unsigned char>(bytes, 0xCD));
    ASSERT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  }
}

TEST_F(SoftwareMemoryTest, CopiesAnswerForMemoryFreedMeanwhile) {
  CUcontext other = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  CUdeviceptr theirs = 0, ours = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&theirs, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD8_v2(theirs, 3, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&ours, 4096), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  {
    Hold hold(function("hold"), stream);
    ASSERT_EQ(d.cuMemcpyDtoDAsync_v2(ours, theirs, 4096, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxDestroy_v2(other), CUDA_SUCCESS) << "frees what the copy will read";
  }
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  unsigned char byte = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&byte, ours + 4095, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 3);
}

TEST(SoftwareMemoryBudget, IsWhatTheEnvironmentSays) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_MEMORY", "16777216", 1);
    const Driver& d = driver();
    CUcontext primary = nullptr;
    CUdeviceptr first = 0, second = 0;
    std::size_t free = 0, total = 0;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&first, 10 << 20), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, std::size_t(16) << 20);
    EXPECT_EQ(free, std::size_t(6) << 20);
    EXPECT_EQ(d.cuMemAlloc_v2(&second, 10 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(d.cuMemFree_v2(first), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&second, 10 << 20), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace ctxbroker::test
