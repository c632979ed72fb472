// SPDX-License-Identifier: Apache-2.0
// What the software device promises about memory beyond what drivers do.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <functional>

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

// The pages of an allocation move when its handle is asked for: what is written meanwhile stays,
// whether the host writes it or a kernel.
TEST_F(SoftwareMemoryTest, SharingMemoryLosesNoWrite) {
  constexpr std::size_t words = std::size_t(4) << 20;
  for (const bool by_kernels : {false, true}) {
    CUdeviceptr address = 0;
    ASSERT_EQ(d.cuMemAlloc_v2(&address, 4 * words), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemsetD32_v2(address, 0, words), CUDA_SUCCESS);
    ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    std::atomic<bool> shared = false;
    std::atomic<unsigned> writes = 0;
    std::vector<unsigned> expected(words), found(words);
    std::thread writer([&] {
      EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      for (unsigned value = 1; !shared || value < 100; ++value, ++writes) {
        const std::size_t index = value * std::size_t(2654435761) % words;  // all over it
        expected[index] = value;
        const CUresult status = by_kernels ? fill(address + 4 * index, value, 1, nullptr)
                                           : d.cuMemcpyHtoD_v2(address + 4 * index, &value, 4);
        EXPECT_EQ(status, CUDA_SUCCESS);
      }
    });
    EXPECT_TRUE(eventually([&] { return writes > 0; }));
    CUipcMemHandle handle = {};
    EXPECT_EQ(d.cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    shared = true;
    writer.join();
    EXPECT_EQ(d.cuMemcpyDtoH_v2(found.data(), address, 4 * words), CUDA_SUCCESS);
    EXPECT_TRUE(found == expected) << by_kernels;
    EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  }
}

// A running kernel may need work that has not begun, so sharing memory must not hold back that work
// for long.
TEST_F(SoftwareMemoryTest, SharingMemoryHoldsUpNoWorkThatAKernelWaitsFor) {
  CUdeviceptr address = 0;
  void* flag = nullptr;
  CUstream waiting = nullptr, releasing = nullptr;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocHost_v2(&flag, 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemsetD32_v2(device_address(flag), 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&releasing, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  void* arguments[] = {&flag};
  ASSERT_EQ(launch("hold", waiting, arguments), CUDA_SUCCESS);
  std::thread sharing([&] {
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    CUipcMemHandle handle = {};
    EXPECT_EQ(d.cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(d.cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuMemsetD32Async(device_address(flag), 1, 1, releasing), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(waiting), CUDA_SUCCESS);
  sharing.join();
  EXPECT_EQ(d.cuMemFreeHost(flag), CUDA_SUCCESS);
}

TEST(SoftwareMemoryBudget, DeviceMemoryIsWhatTheEnvironmentSays) {
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

// NVIDIA's page on the synchronisation behaviour of the API names these copies: a synchronous copy
// into host memory, by any function, and every copy from host to host memory.
TEST_F(SoftwareMemoryTest, CopiesIntoHostMemoryAreDoneWhenTheyReturn) {
  CUstream stream = nullptr;
  CUdeviceptr source = 0;
  void* memory = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&source, 4), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocHost_v2(&memory, 12), CUDA_SUCCESS);
  auto* pinned = static_cast<volatile unsigned*>(memory);
  const CUdeviceptr address = device_address(memory);
  const auto behind_a_kernel = [&](CUstream of, const std::function<CUresult()>& copy) {
    Hold hold(function("hold"), of);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      hold.let_go();
    });
    EXPECT_EQ(copy(), CUDA_SUCCESS);
    const unsigned seen = pinned[1];
    later.join();
    return seen;
  };
  ASSERT_EQ(d.cuMemsetD32_v2(source, 7, 1), CUDA_SUCCESS);
  pinned[0] = 8;
  pinned[1] = 0;
  EXPECT_EQ(behind_a_kernel(nullptr, [&] { return d.cuMemcpyDtoD_v2(address + 4, source, 4); }),
            7u);
  EXPECT_EQ(
      behind_a_kernel(stream, [&] { return d.cuMemcpyAsync(address + 4, address, 4, stream); }),
      8u);
  // A synchronous memset or copy within device memory still returns at once.
  {
    Hold hold(function("hold"), nullptr);
    EXPECT_EQ(d.cuMemsetD32_v2(source, 9, 1), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuMemFreeHost(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(source), CUDA_SUCCESS);
}

CUmemLocation device_zero() {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return location;
}

std::size_t free_memory() {
  std::size_t bytes = 0;
  EXPECT_EQ(driver().cuMemGetInfo_v2(&bytes, nullptr), CUDA_SUCCESS);
  return bytes;
}

// Every way to take memory, and to give it back, changes what the device has left by exactly that.
TEST_F(SoftwareMemoryTest, EveryKindOfMemoryIsChargedToTheDevice) {
  constexpr std::size_t bytes = std::size_t(2) << 20;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  const struct {
    const char* what;
    std::function<CUresult()> take, give_back;
  } rows[] = {
      {"plain", [&] { return d.cuMemAlloc_v2(&address, bytes); },
       [&] { return d.cuMemFree_v2(address); }},
      {"managed", [&] { return d.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_HOST); },
       [&] { return d.cuMemFree_v2(address); }},
      {"pooled", [&] { return d.cuMemAllocAsync(&address, bytes, nullptr); },
       [&] {
         CUresult status = d.cuMemFreeAsync(address, nullptr);
         return status != CUDA_SUCCESS ? status : d.cuStreamSynchronize(nullptr);
       }},
      {"array",
       [&] {
         CUDA_ARRAY_DESCRIPTOR shape = {1024, 512, CU_AD_FORMAT_FLOAT, 1};
         return d.cuArrayCreate_v2(&array, &shape);
       },
       [&] { return d.cuArrayDestroy(array); }},
      {"mapped",
       [&] {
         CUmemAllocationProp properties = {};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = device_zero();
         return d.cuMemCreate(&handle, bytes, &properties, 0);
       },
       [&] { return d.cuMemRelease(handle); }},
  };
  for (const auto& row : rows) {
    std::size_t before = free_memory();
    ASSERT_EQ(row.take(), CUDA_SUCCESS) << row.what;
    EXPECT_EQ(free_memory(), before - bytes) << row.what;
    EXPECT_EQ(row.give_back(), CUDA_SUCCESS) << row.what;
    EXPECT_EQ(free_memory(), before) << row.what;
    EXPECT_NE(row.give_back(), CUDA_SUCCESS) << row.what << ", a second time";
  }
}

TEST_F(SoftwareMemoryTest, APoolHoldsNoMoreThanItMay) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = device_zero();
  properties.maxSize = 1 << 20;
  CUmemoryPool pool = nullptr;
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(d.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocFromPoolAsync(&first, 1 << 20, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocFromPoolAsync(&second, 1, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(d.cuMemFreeAsync(first, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeAsync(first, nullptr), CUDA_ERROR_INVALID_VALUE) << "it is freed already";
  EXPECT_EQ(d.cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocFromPoolAsync(&second, 1, pool, nullptr), CUDA_SUCCESS);
  std::size_t between = free_memory();
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), between) << "what is allocated from it stays";
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(second), CUDA_SUCCESS);
  EXPECT_GT(free_memory(), between);
}

TEST_F(SoftwareMemoryTest, AnArrayDiesWithItsContext) {
  CUcontext own = nullptr;
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1}, found = {};
  std::size_t before = free_memory();
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(d.cuArrayGetDescriptor_v2(&found, array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(free_memory(), before);
}

// A kernel that writes to addresses without memory, or without leave, faults; with leave it does
// not.
TEST(SoftwareVirtualMemory, KernelFaultsOnVirtualMemoryWithoutAccess) {
  CTXB_REQUIRE_DEVICE();
  for (int step = 0; step < 3; ++step)
    expect_in_child([&] {
      const Driver& d = driver();
      constexpr std::size_t bytes = std::size_t(2) << 20;
      CUcontext primary = nullptr;
      CUmodule module = nullptr;
      CUfunction fill = nullptr;
      CUdeviceptr address = 0;
      CUmemGenericAllocationHandle handle = 0;
      CUmemAllocationProp properties = {};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = device_zero();
      EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
      EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
      EXPECT_EQ(d.cuModuleGetFunction(&fill, module, "fill"), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
      CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READ};
      if (step >= 1) {
        EXPECT_EQ(d.cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
        EXPECT_EQ(d.cuMemSetAccess(address, bytes, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
      }
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (step == 2) {
        EXPECT_EQ(d.cuMemSetAccess(address, bytes, &access, 1), CUDA_SUCCESS);
      }
      unsigned value = 1, count = 1;
      void* arguments[] = {&address, &value, &count};
      EXPECT_EQ(d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
                CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), step == 2 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
      if (step != 2) {
        EXPECT_EQ(d.cuMemUnmap(address, bytes), CUDA_ERROR_ILLEGAL_ADDRESS) << "as every call";
      }
    });
}

}  // namespace
}  // namespace ctxbroker::test
