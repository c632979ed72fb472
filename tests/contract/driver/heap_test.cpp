// SPDX-License-Identifier: Apache-2.0
// What kernels allocate with malloc, and the heap that they allocate it from. All of it was asked
// of an H100 with driver 580 first.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view heap_ptx;
}

namespace ctxbroker::test {
namespace {

using Address = unsigned long long;

// A context of its own with the kernels, so that each test begins with an unused heap.
struct Kernels {
  static constexpr unsigned threads = 64;
  const Driver& d = driver();
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr out = 0, lists = 0;

  Kernels() {
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  }
  void load() {
    const std::string text(fixtures::heap_ptx);
    ASSERT_EQ(d.cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&out, threads * sizeof(Address)), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&lists, threads * sizeof(Address)), CUDA_SUCCESS);
  }
  template <class A, class B>
  CUresult run(const char* name, unsigned block, A first, B second) {
    CUfunction function = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS) << name;
    void* arguments[] = {&first, &second};
    const CUresult status =
        d.cuLaunchKernel(function, 1, 1, 1, block, 1, 1, 0, nullptr, arguments, nullptr);
    return status == CUDA_SUCCESS ? d.cuCtxSynchronize() : status;
  }
  CUresult release(Address address) { return run("free_block", 1, out, address); }
  Address give(Address bytes) {
    Address address = 0;
    EXPECT_EQ(run("give_blocks", 1, out, bytes), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&address, out, sizeof(address)), CUDA_SUCCESS);
    return address;
  }
  CUresult set(std::size_t bytes) { return d.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes); }
  std::size_t size() const {
    std::size_t bytes = 0;
    EXPECT_EQ(d.cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
    return bytes;
  }
};

class HeapTest : public ::testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
  void TearDown() override {
    if (kernels == nullptr) return;
    EXPECT_EQ(driver().cuCtxDestroy_v2(kernels->context), CUDA_SUCCESS);
  }
  Kernels& start() {
    kernels = std::make_unique<Kernels>();
    return *kernels;
  }
  std::unique_ptr<Kernels> kernels;
};

TEST_F(HeapTest, BlocksLiveFromLaunchToLaunch) {
  Kernels& k = start();
  k.load();
  const int length = 9;
  ASSERT_EQ(k.run("make_lists", Kernels::threads, k.lists, length), CUDA_SUCCESS);
  ASSERT_EQ(k.run("sum_and_free_lists", Kernels::threads, k.lists, k.out), CUDA_SUCCESS);
  std::vector<int> sums(Kernels::threads);
  EXPECT_EQ(k.d.cuMemcpyDtoH_v2(sums.data(), k.out, sums.size() * sizeof(int)), CUDA_SUCCESS);
  for (int i = 0; i < static_cast<int>(sums.size()); ++i) EXPECT_EQ(sums[i], length * 100 * i + 36);
}

TEST_F(HeapTest, HeapOfEightMegabytesIsTheDefaultAndFillsUp) {
  Kernels& k = start();
  EXPECT_EQ(k.size(), std::size_t{8} << 20);
  k.load();
  int blocks = 0;
  while (blocks < 20 && k.give(1 << 20) != 0) ++blocks;
  EXPECT_GE(blocks, 6);
  EXPECT_LT(blocks, 8);
  EXPECT_EQ(k.give(Address{1} << 40), 0U);
}

TEST_F(HeapTest, BlocksOfAnySizeAreDistinctAndAligned) {
  Kernels& k = start();
  k.load();
  Address last = 0;
  for (const Address bytes : {0, 1, 1, 8, 17, 100}) {
    const Address address = k.give(bytes);
    EXPECT_NE(address, 0U) << bytes;
    EXPECT_NE(address, last) << bytes;
    EXPECT_EQ(address % 16, 0U) << bytes;
    last = address;
  }
  EXPECT_EQ(k.release(0), CUDA_SUCCESS);
}

TEST_F(HeapTest, HostCannotReachHeapBlocks) {
  Kernels& k = start();
  k.load();
  const Address block = k.give(64);
  Address value = 0;
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_EQ(k.d.cuMemcpyDtoH_v2(&value, block, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(k.d.cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(k.d.cuMemGetAddressRange_v2(&base, &size, block), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(k.d.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HeapTest, HeapSizeIsFixedAtTheFirstLaunch) {
  Kernels& k = start();
  const std::pair<std::size_t, std::size_t> steps[] = {{0, 4 << 20},
                                                       {1, 4 << 20},
                                                       {(8 << 20) + 1, (8 << 20) + (64 << 10)},
                                                       {64 << 20, 64 << 20},
                                                       {16 << 20, 16 << 20}};
  for (const auto& [asked, set] : steps) {
    EXPECT_EQ(k.set(asked), CUDA_SUCCESS) << asked;
    EXPECT_EQ(k.size(), set) << asked;
  }
  k.load();
  EXPECT_NE(k.give(12 << 20), 0U);
  EXPECT_EQ(k.set(32 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(k.size(), std::size_t{16} << 20);
}

// In child processes: nothing works after the fault. An H100 does not notice the free of what
// cuMemAlloc gave, or of an address inside of a block; the software device names these too.
TEST_F(HeapTest, AFreeOfWhatIsNoBlockIsAFault) {
  expect_in_child([] {
    Kernels k;
    k.load();
    const Address block = k.give(64);
    EXPECT_EQ(k.release(block), CUDA_SUCCESS);
    EXPECT_EQ(k.release(block), CUDA_ERROR_LAUNCH_FAILED);
  });
  expect_in_child([] {
    Kernels k;
    k.load();
    EXPECT_EQ(k.release(12345), CUDA_ERROR_MISALIGNED_ADDRESS);
  });
  if (!driver().is_software) return;
  expect_in_child([] {
    Kernels k;
    k.load();
    EXPECT_EQ(k.release(k.lists), CUDA_ERROR_LAUNCH_FAILED);
  });
}

}  // namespace
}  // namespace ctxbroker::test
