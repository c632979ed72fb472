// SPDX-License-Identifier: Apache-2.0
// Addresses and memory apart: reserve, create, map, allow.
#include <cstring>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class VirtualMemoryTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    ASSERT_EQ(d.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_SUCCESS);
  }
  CUdeviceptr reserve(std::size_t units) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAddressReserve(&address, units * unit, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(address % unit, 0u);
    return address;
  }
  CUmemGenericAllocationHandle create(std::size_t units = 1) const {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(d.cuMemCreate(&handle, units * unit, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  CUresult allow(CUdeviceptr address, std::size_t units,
                 CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const {
    CUmemAccessDesc access = {properties.location, flags};
    return d.cuMemSetAccess(address, units * unit, &access, 1);
  }
  unsigned long long access(CUdeviceptr address) const {
    unsigned long long flags = 99;
    EXPECT_EQ(d.cuMemGetAccess(&flags, &properties.location, address), CUDA_SUCCESS);
    return flags;
  }
  unsigned read(CUdeviceptr address) const {
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, sizeof value), CUDA_SUCCESS);
    return value;
  }

  CUmemAllocationProp properties = {};
  std::size_t unit = 0;  // bytes
};

TEST_F(VirtualMemoryTest, MappedMemoryIsUsedLikeAnyOther) {
  CUdeviceptr address = reserve(2);
  CUmemGenericAllocationHandle first = create(), second = create();
  ASSERT_EQ(d.cuMemMap(address, unit, 0, first, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemMap(address + unit, unit, 0, second, 0), CUDA_SUCCESS);
  EXPECT_EQ(access(address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_EQ(allow(address, 2), CUDA_SUCCESS);
  EXPECT_EQ(access(address + unit), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  auto count = static_cast<unsigned>(unit / 4);
  EXPECT_EQ(fill(address, 11, count, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fill(address + unit, 12, count, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(read(address), 11u);
  EXPECT_EQ(read(address + 2 * unit - 4), 12u);
  unsigned type = 0;
  CUcontext context = primary;
  EXPECT_EQ(d.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(d.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr) << "it is no context's";
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemUnmap(address, 2 * unit), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(first), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(second), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(address, 2 * unit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, OneMemoryIsMappedAtTwoAddresses) {
  CUdeviceptr here = reserve(1), there = reserve(1);
  CUmemGenericAllocationHandle memory = create();
  ASSERT_EQ(d.cuMemMap(here, unit, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemMap(there, unit, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS) << "its mappings keep it";
  ASSERT_EQ(allow(here, 1), CUDA_SUCCESS);
  ASSERT_EQ(allow(there, 1), CUDA_SUCCESS);
  EXPECT_EQ(fill(here, 77, 16, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(read(there), 77u);
  for (CUdeviceptr address : {here, there}) {
    EXPECT_EQ(d.cuMemUnmap(address, unit), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAddressFree(address, unit), CUDA_SUCCESS);
  }
}

TEST_F(VirtualMemoryTest, HandleLivesUntilEveryRetainIsReleased) {
  CUdeviceptr address = reserve(1);
  CUmemGenericAllocationHandle memory = create(), again = 0;
  ASSERT_EQ(d.cuMemMap(address, unit, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address + 64)),
            CUDA_SUCCESS);
  EXPECT_EQ(again, memory);
  CUmemAllocationProp found = {};
  EXPECT_EQ(d.cuMemGetAllocationPropertiesFromHandle(&found, memory), CUDA_SUCCESS);
  EXPECT_EQ(found.location.id, device);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemGetAllocationPropertiesFromHandle(&found, memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemUnmap(address, unit), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(address, unit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, OutlivesAContext) {
  CUdeviceptr address = reserve(1);
  CUmemGenericAllocationHandle memory = create();
  ASSERT_EQ(d.cuMemMap(address, unit, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(allow(address, 1), CUDA_SUCCESS);
  CUcontext own = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(address, 5, 4), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(read(address), 5u);
  EXPECT_EQ(d.cuMemUnmap(address, unit), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(address, unit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, CreateMapAndAccessRefuseBadRanges) {
  CUdeviceptr address = reserve(2);
  CUmemGenericAllocationHandle memory = create(), none = 0;
  EXPECT_EQ(d.cuMemCreate(&none, unit + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemCreate(&none, std::size_t(1) << 46, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(d.cuMemMap(address, 2 * unit, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED)
      << "more than there is";
  ASSERT_EQ(d.cuMemMap(address, unit, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemMap(address, unit, 0, memory, 0), CUDA_ERROR_INVALID_VALUE) << "taken";
  EXPECT_EQ(allow(address, 2), CUDA_ERROR_INVALID_VALUE) << "half of it is not mapped";
  EXPECT_EQ(d.cuMemUnmap(address + unit, unit), CUDA_SUCCESS) << "nothing is there";
  EXPECT_EQ(d.cuMemUnmap(address, unit), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(address, unit), CUDA_ERROR_INVALID_VALUE) << "half of it";
  EXPECT_EQ(d.cuMemAddressFree(address, 2 * unit), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
