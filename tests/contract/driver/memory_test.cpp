// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class MemoryTest : public DriverTest {
 protected:
  CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  template <class Value>
  Value attribute(CUpointer_attribute which, CUdeviceptr address) const {
    Value value{};
    EXPECT_EQ(d.cuPointerGetAttribute(&value, which, address), CUDA_SUCCESS) << which;
    return value;
  }
};

TEST_F(MemoryTest, AllocatesAlignedAndFrees) {
  CUdeviceptr first = allocate(100), second = allocate(1);
  EXPECT_EQ(first % 256, 0u);
  EXPECT_EQ(second % 256, 0u);
  EXPECT_NE(first, second);
  EXPECT_EQ(d.cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(second), CUDA_SUCCESS);
}

TEST_F(MemoryTest, AllocAndFreeRefuseBadSizesAndAddresses) {
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAlloc_v2(nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAlloc_v2(&address, std::size_t(1) << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(d.cuMemAlloc_v2(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(d.cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(0x12345), CUDA_ERROR_INVALID_VALUE);
  address = allocate(100);
  EXPECT_EQ(d.cuMemFree_v2(address + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(MemoryTest, TellsFreeMemory) {
  std::size_t before = 0, between = 0, after = 0, total = 0;
  ASSERT_EQ(d.cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
  std::size_t bytes = std::size_t(64) << 20;
  CUdeviceptr address = allocate(bytes);
  ASSERT_EQ(d.cuMemGetInfo_v2(&between, nullptr), CUDA_SUCCESS);
  EXPECT_LE(between, before - bytes);
  ASSERT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
  EXPECT_GE(after, between + bytes);
}

TEST_F(MemoryTest, FindsTheAllocationOfAnAddress) {
  CUdeviceptr address = allocate(100), begin = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(d.cuMemGetAddressRange_v2(&begin, &bytes, address + 50), CUDA_SUCCESS);
  EXPECT_EQ(begin, address);
  EXPECT_EQ(bytes, 100u);
  EXPECT_EQ(d.cuMemGetAddressRange_v2(nullptr, nullptr, address), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemGetAddressRange_v2(&begin, &bytes, address + 150), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(d.cuMemGetAddressRange_v2(&begin, &bytes, 0x1000), CUDA_ERROR_NOT_FOUND);
}

TEST_F(MemoryTest, PitchesRows) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(d.cuMemAllocPitch_v2(&address, &pitch, 600, 10, 16), CUDA_SUCCESS);
  EXPECT_GE(pitch, 600u);
  EXPECT_EQ(pitch % 32, 0u);
  EXPECT_EQ(d.cuMemsetD2D8_v2(address, pitch, 1, 600, 10), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocPitch_v2(&address, &pitch, 100, 10, 5), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAllocPitch_v2(&address, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PinnedMemoryHasTheSameAddressOnTheDevice) {
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&pinned, 100), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuMemHostGetDevicePointer_v2(&address, static_cast<char*>(pinned) + 10, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(address, device_address(pinned) + 10);
  unsigned flags = 0;
  EXPECT_EQ(d.cuMemHostGetFlags(&flags, pinned), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_MEMHOSTALLOC_DEVICEMAP));
  char pageable = 0;
  EXPECT_EQ(d.cuMemHostGetDevicePointer_v2(&address, &pageable, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(device_address(pinned)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFreeHost(static_cast<char*>(pinned) + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeHost(&pageable), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFreeHost(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemHostAlloc(&pinned, 64, 0x100), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RegistersTheApplicationsMemory) {
  std::unique_ptr<void, void (*)(void*)> pages(std::aligned_alloc(4096, 8192), std::free);
  auto* memory = static_cast<char*>(pages.get());
  ASSERT_EQ(d.cuMemHostRegister_v2(memory, 8192, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemHostRegister_v2(memory + 4096, 4096, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuMemHostGetDevicePointer_v2(&address, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD8_v2(address, 7, 8192), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(memory[0], 7);
  EXPECT_EQ(memory[8191], 7);
  EXPECT_EQ(d.cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemHostUnregister(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemHostUnregister(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(d.cuMemHostRegister_v2(nullptr, 10, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemHostRegister_v2(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PointerAttributesTellTheKindOfMemory) {
  CUdeviceptr address = allocate(100);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 8),
            unsigned(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, address), primary);
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), device);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 8), address + 8);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 8), address);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 8), 100u);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), 0u);
  EXPECT_EQ(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address),
            attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address + 8));
  void* host = nullptr;
  EXPECT_EQ(d.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
            CUDA_ERROR_INVALID_VALUE);
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&pinned, 64), CUDA_SUCCESS);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_address(pinned)),
            unsigned(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(attribute<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, device_address(pinned)), pinned);
  EXPECT_EQ(d.cuMemFreeHost(pinned), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(d.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(999), address),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, SeveralPointerAttributesAreReadAtOnce) {
  CUcontext context = nullptr;
  unsigned type = 99;
  int ordinal = -9;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&context, &type, &ordinal};
  EXPECT_EQ(d.cuPointerGetAttributes(3, which, values, allocate(64)), CUDA_SUCCESS);
  EXPECT_EQ(context, primary);
  EXPECT_EQ(type, unsigned(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(ordinal, device);
  char pageable = 0;
  EXPECT_EQ(d.cuPointerGetAttributes(3, which, values, device_address(&pageable)), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, -2);
}

TEST_F(MemoryTest, ManagedMemoryIsTheHostsAndTheDevices) {
  int managed = 0;
  ASSERT_EQ(d.cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device),
            CUDA_SUCCESS);
  ASSERT_EQ(managed, 1);
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), 1u);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, address), address);
  EXPECT_EQ(d.cuMemsetD32_v2(address, 7, 1024), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  auto* values = reinterpret_cast<unsigned*>(address);
  EXPECT_EQ(values[1023], 7u);
  values[0] = 8;
  unsigned value = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, sizeof value), CUDA_SUCCESS);
  EXPECT_EQ(value, 8u);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAllocManaged(&address, 64, 0), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace ctxbroker::test
