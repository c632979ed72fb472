// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class CopyTest : public KernelTest {
 protected:
  CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  std::vector<unsigned char> read(CUdeviceptr address, std::size_t bytes) const {
    std::vector<unsigned char> data(bytes);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(data.data(), address, bytes), CUDA_SUCCESS);
    return data;
  }
  static std::vector<unsigned char> counting(std::size_t bytes) {
    std::vector<unsigned char> data(bytes);
    std::iota(data.begin(), data.end(), 0);
    return data;
  }
};

TEST_F(CopyTest, CopyRoundTripKeepsTheData) {
  auto data = counting(100000);
  CUdeviceptr first = allocate(data.size()), second = allocate(data.size());
  EXPECT_EQ(d.cuMemcpyHtoD_v2(first, data.data(), data.size()), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoD_v2(second, first, data.size()), CUDA_SUCCESS);
  EXPECT_EQ(read(second, data.size()), data);
  EXPECT_EQ(d.cuMemsetD8_v2(first, 0, data.size()), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyPeer(first, primary, second, primary, data.size()), CUDA_SUCCESS);
  EXPECT_EQ(read(first, data.size()), data);
}

TEST_F(CopyTest, UnifiedCopyFindsHostAndDeviceSides) {
  auto data = counting(64);
  std::vector<unsigned char> back(64), again(64);
  CUdeviceptr address = allocate(64);
  EXPECT_EQ(d.cuMemcpy(address, device_address(data.data()), 64), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpy(device_address(back.data()), address, 64), CUDA_SUCCESS);
  EXPECT_EQ(back, data);
  EXPECT_EQ(d.cuMemcpy(device_address(again.data()), device_address(data.data()), 64),
            CUDA_SUCCESS);
  EXPECT_EQ(again, data);
}

TEST_F(CopyTest, AddressOutsideOfDeviceMemoryIsRefused) {
  CUdeviceptr address = allocate(100);
  char bytes[64] = {}, other[64] = {};
  EXPECT_EQ(d.cuMemcpyHtoD_v2(address, bytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(0x1000, bytes, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(address, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(address + 90, bytes, 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(bytes, 0x1000, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(bytes, device_address(other), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyHtoD_v2(device_address(bytes), other, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpyDtoD_v2(address, device_address(bytes), 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, FillsWithEveryWidth) {
  CUdeviceptr address = allocate(64);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 0x11, 64), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD16_v2(address + 2, 0x2233, 2), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(address + 8, 0x44556677, 2), CUDA_SUCCESS);
  std::vector<unsigned char> expected = {0x11, 0x11, 0x33, 0x22, 0x33, 0x22, 0x11, 0x11, 0x77,
                                         0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44, 0x11};
  EXPECT_EQ(read(address, expected.size()), expected);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(address + 2, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD16_v2(address + 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD8_v2(0x1000, 1, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 1, 3000000), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, FillsRowsAndLeavesTheRest) {
  CUdeviceptr address = allocate(64);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD2D8_v2(address, 16, 0xAA, 3, 2), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD2D16_v2(address + 4, 16, 0xBBCC, 1, 2), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD2D32_v2(address + 8, 16, 0x01020304, 1, 2), CUDA_SUCCESS);
  auto data = read(address, 64);
  for (std::size_t row : {0u, 16u}) {
    std::vector<unsigned char> expected = {0xAA, 0xAA, 0xAA, 0, 0xCC, 0xBB, 0, 0, 4, 3, 2, 1, 0, 0};
    EXPECT_EQ(std::vector(data.begin() + static_cast<std::ptrdiff_t>(row),
                          data.begin() + static_cast<std::ptrdiff_t>(row + 14)),
              expected);
  }
  EXPECT_EQ(data[32], 0);
  EXPECT_EQ(d.cuMemsetD2D8_v2(address, 8, 1, 16, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD2D32_v2(address, 18, 1, 4, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, CopiesRectangles) {
  auto data = counting(32);
  CUdeviceptr address = allocate(256);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 0xEE, 256), CUDA_SUCCESS);
  CUDA_MEMCPY2D request = {};
  request.srcMemoryType = CU_MEMORYTYPE_HOST;
  request.srcHost = data.data();
  request.srcPitch = 8;
  request.srcXInBytes = 2;
  request.srcY = 1;
  request.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  request.dstDevice = address;
  request.dstPitch = 32;
  request.dstXInBytes = 4;
  request.dstY = 2;
  request.WidthInBytes = 5;
  request.Height = 3;
  EXPECT_EQ(d.cuMemcpy2D_v2(&request), CUDA_SUCCESS);
  auto result = read(address, 256);
  for (std::size_t y = 0; y < 8; ++y)
    for (std::size_t x = 0; x < 32; ++x) {
      bool inside = y >= 2 && y < 5 && x >= 4 && x < 9;
      int expected = inside ? data[(y - 2 + 1) * 8 + (x - 4 + 2)] : 0xEE;
      EXPECT_EQ(result[y * 32 + x], expected) << x << ", " << y;
    }
  std::vector<unsigned char> back(15);
  CUDA_MEMCPY2D backwards = {};
  backwards.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  backwards.srcDevice = address + 68;
  backwards.srcPitch = 32;
  backwards.dstMemoryType = CU_MEMORYTYPE_HOST;
  backwards.dstHost = back.data();
  backwards.dstPitch = 5;
  backwards.WidthInBytes = 5;
  backwards.Height = 3;
  EXPECT_EQ(d.cuMemcpy2DUnaligned_v2(&backwards), CUDA_SUCCESS);
  for (std::size_t y = 0; y < 3; ++y)
    for (std::size_t x = 0; x < 5; ++x) EXPECT_EQ(back[y * 5 + x], data[(y + 1) * 8 + x + 2]);
  request.dstPitch = 4;
  EXPECT_EQ(d.cuMemcpy2D_v2(&request), CUDA_ERROR_INVALID_VALUE);
  request.dstPitch = 32;
  request.Height = 1000;
  EXPECT_EQ(d.cuMemcpy2D_v2(&request), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemcpy2D_v2(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, TakesPageableSourcesBeforeItReturns) {
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr address = allocate(64);
  auto data = counting(64), expected = data;
  Hold hold(function("hold"), stream);
  EXPECT_EQ(d.cuMemcpyHtoDAsync_v2(address, data.data(), data.size(), stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::fill(data.begin(), data.end(), 0);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(read(address, 64), expected);
}

TEST_F(CopyTest, ReadsPinnedSourcesWhenItsTurnComes) {
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr address = allocate(4);
  void* memory = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&memory, 8), CUDA_SUCCESS);
  auto* pinned = static_cast<unsigned*>(memory);
  pinned[0] = 1;
  pinned[1] = 0;
  {
    Hold hold(function("hold"), stream);
    EXPECT_EQ(d.cuMemcpyHtoDAsync_v2(address, pinned, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(pinned + 1, address, 4, stream), CUDA_SUCCESS);
    pinned[0] = 2;
  }
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(pinned[1], 2u);
  EXPECT_EQ(d.cuMemFreeHost(memory), CUDA_SUCCESS);
}

TEST_F(CopyTest, AsynchronousCopiesDoTheWork) {
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  auto data = counting(4096);
  CUdeviceptr first = allocate(4096), second = allocate(4096), third = allocate(4096);
  EXPECT_EQ(d.cuMemcpyHtoDAsync_v2(first, data.data(), 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoDAsync_v2(second, first, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyPeerAsync(third, primary, second, primary, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(third, 0, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD8Async(third + 4, 0xFF, 1, stream), CUDA_SUCCESS);
  std::vector<unsigned char> back(4096);
  EXPECT_EQ(d.cuMemcpyAsync(device_address(back.data()), third, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  auto expected = data;
  for (std::size_t i = 0; i < 4; ++i) expected[i] = 0;
  expected[4] = 0xFF;
  EXPECT_EQ(back, expected);
}

TEST_F(CopyTest, LargeCopiesArriveWhole) {
  auto data = counting(std::size_t(40) << 20);
  CUdeviceptr address = allocate(data.size());
  EXPECT_EQ(d.cuMemcpyHtoDAsync_v2(address, data.data(), data.size(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(read(address, data.size()), data);
}

// The host may look at once: it finds what was set, also where the call had to wait for a kernel.
// By NVIDIA's page on the synchronisation behaviour of the API.
TEST_F(CopyTest, SynchronousOnesThatReachHostMemoryAreDoneWhenTheyReturn) {
  constexpr std::size_t bytes = std::size_t(1) << 20;
  const CUdeviceptr plain = allocate(bytes), other = allocate(bytes);
  void *first = nullptr, *second = nullptr;
  CUdeviceptr managed = 0;
  ASSERT_EQ(d.cuMemAllocHost_v2(&first, bytes), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocHost_v2(&second, bytes), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  const CUdeviceptr pinned = device_address(first);
  const auto waits = [&](CUdeviceptr to, CUdeviceptr from, decltype(d.cuMemcpy) copy) {
    Hold hold(function("hold"), nullptr);
    std::atomic<bool> released = false;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      released = true;
      hold.let_go();
    });
    EXPECT_EQ(copy(to, from, bytes), CUDA_SUCCESS);
    const bool waited = released;
    later.join();
    return waited;
  };
  EXPECT_FALSE(waits(plain, other, d.cuMemcpyDtoD_v2)) << "only the device can see it";
  EXPECT_TRUE(waits(plain, pinned, d.cuMemcpy));
  EXPECT_TRUE(waits(pinned, plain, d.cuMemcpy));
  EXPECT_TRUE(waits(device_address(second), pinned, d.cuMemcpy));
  EXPECT_TRUE(waits(managed, plain, d.cuMemcpy));
  EXPECT_TRUE(waits(plain, managed, d.cuMemcpy));
  EXPECT_EQ(d.cuMemFreeHost(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeHost(second), CUDA_SUCCESS);
}

TEST_F(CopyTest, SetsMemoryThatTheHostSeesBeforeItReturns) {
  void* pinned = nullptr;
  CUdeviceptr managed = 0;
  ASSERT_EQ(d.cuMemHostAlloc(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  for (const CUdeviceptr address : {device_address(pinned), managed}) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): one address space
    const auto* seen = reinterpret_cast<const volatile unsigned char*>(address);
    for (unsigned char i = 1; i <= 50; ++i) {
      ASSERT_EQ(d.cuMemsetD8_v2(address, i, 64), CUDA_SUCCESS);
      ASSERT_EQ(seen[0], i);
      ASSERT_EQ(seen[63], i);
    }
    const std::pair<const char*, std::function<CUresult(unsigned char)>> calls[] = {
        {"D8", [&](unsigned char value) { return d.cuMemsetD8_v2(address, value, 64); }},
        {"D16", [&](unsigned char value) { return d.cuMemsetD16_v2(address, value, 32); }},
        {"D32", [&](unsigned char value) { return d.cuMemsetD32_v2(address, value, 16); }},
        {"D2D8", [&](unsigned char value) { return d.cuMemsetD2D8_v2(address, 8, value, 4, 8); }},
        {"D2D16", [&](unsigned char value) { return d.cuMemsetD2D16_v2(address, 8, value, 2, 8); }},
        {"D2D32", [&](unsigned char value) { return d.cuMemsetD2D32_v2(address, 8, value, 1, 8); }},
    };
    if (address == managed) break;  // while a kernel runs, not every device lets the host look
    unsigned char value = 100;
    for (const auto& [name, set] : calls) {
      Hold hold(function("hold"), nullptr);
      std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        hold.let_go();
      });
      EXPECT_EQ(set(++value), CUDA_SUCCESS) << name;
      EXPECT_EQ(seen[0], value) << name;
      later.join();
    }
  }
  EXPECT_EQ(d.cuMemFree_v2(managed), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeHost(pinned), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
