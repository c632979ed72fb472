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

TEST_F(VirtualMemoryTest, AllocatedMemoryHasNoAccessOfAMapping) {
  CUdeviceptr allocated = 0;
  void* pinned = nullptr;
  ASSERT_EQ(d.cuMemAlloc_v2(&allocated, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemHostAlloc(&pinned, 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(access(allocated), 0U);
  EXPECT_EQ(access(reinterpret_cast<CUdeviceptr>(pinned)), 0U);
  EXPECT_EQ(d.cuMemFree_v2(allocated), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeHost(pinned), CUDA_SUCCESS);
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

// ---- Host memory ----

class MappedHostMemoryTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    // The attributes' names are younger than the oldest headers.
    const int node = attribute(134);
    if (node >= 0 && attribute(141) == 1) {
      properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {node}};
    } else if (attribute(145) == 1) {
      properties.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    } else {
      GTEST_SKIP() << "the driver makes no host memory without addresses";
    }
    ASSERT_EQ(d.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_SUCCESS);
  }
  int attribute(int which) const {
    int value = -1;
    d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device);
    return value;
  }
  // Maps one piece of memory after another.
  CUdeviceptr map(std::size_t units = 1) const {
    CUdeviceptr begin = 0;
    EXPECT_EQ(d.cuMemAddressReserve(&begin, units * unit, 0, 0, 0), CUDA_SUCCESS);
    for (std::size_t i = 0; i < units; ++i) {
      CUmemGenericAllocationHandle memory = 0;
      EXPECT_EQ(d.cuMemCreate(&memory, unit, &properties, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemMap(begin + i * unit, unit, 0, memory, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS) << "the mapping keeps it";
    }
    const CUmemAccessDesc access[] = {
        {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    EXPECT_EQ(d.cuMemSetAccess(begin, units * unit, access, 2), CUDA_SUCCESS);
    return begin;
  }
  void unmap(CUdeviceptr begin, std::size_t units = 1) const {
    EXPECT_EQ(d.cuMemUnmap(begin, units * unit), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAddressFree(begin, units * unit), CUDA_SUCCESS);
  }
  static unsigned* words_at(CUdeviceptr address) { return reinterpret_cast<unsigned*>(address); }
  template <typename Value>
  Value told(CUpointer_attribute which, CUdeviceptr address) const {
    Value value{};
    EXPECT_EQ(d.cuPointerGetAttribute(&value, which, address), CUDA_SUCCESS) << which;
    return value;
  }

  CUmemAllocationProp properties = {};
  std::size_t unit = 0;  // bytes
};

TEST_F(MappedHostMemoryTest, HostAndDeviceUseItAtOneAddress) {
  const CUdeviceptr memory = map();
  unsigned* const words = words_at(memory);
  EXPECT_EQ(fill(memory, 11, 16, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[15], 11U);
  EXPECT_EQ(d.cuMemsetD32_v2(memory, 12, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[15], 12U);
  CUdeviceptr on_device = 0;
  unsigned read = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&on_device, 64), CUDA_SUCCESS);
  words[3] = 13;
  EXPECT_EQ(d.cuMemcpyHtoD_v2(on_device, words, 64), CUDA_SUCCESS) << "in the host's place";
  EXPECT_EQ(d.cuMemcpyDtoD_v2(memory + 64, on_device, 64), CUDA_SUCCESS) << "in the device's";
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(words[16 + 3], 13U);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&read, memory + 12, sizeof read), CUDA_SUCCESS);
  EXPECT_EQ(read, 13U);
  EXPECT_EQ(d.cuMemFree_v2(on_device), CUDA_SUCCESS);
  unmap(memory);
}

TEST_F(MappedHostMemoryTest, MemsetDoesNotCrossFromOneMemoryToTheNext) {
  const CUdeviceptr memory = map(2);
  const CUdeviceptr seam = memory + unit;
  EXPECT_EQ(d.cuMemsetD32_v2(seam - 64, 1, 32), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemsetD32_v2(seam - 64, 1, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(seam, 1, 16), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  unmap(memory, 2);
}

TEST_F(MappedHostMemoryTest, LooksLikePinnedMemoryThatHasNoContext) {
  const CUdeviceptr memory = map(), inside = memory + 4096;
  EXPECT_EQ(told<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside), nullptr);
  EXPECT_EQ(told<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), unsigned(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(told<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
  EXPECT_EQ(told<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), inside);
  EXPECT_EQ(told<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
  EXPECT_EQ(told<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1U);
  EXPECT_EQ(told<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 0U);
  EXPECT_EQ(told<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside), nullptr);
  EXPECT_EQ(told<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside),
            unsigned(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  unsigned flags = 0;
  EXPECT_EQ(d.cuMemHostGetFlags(&flags, words_at(memory)), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr shown = 0;
  EXPECT_EQ(d.cuMemHostGetDevicePointer_v2(&shown, words_at(inside), 0), CUDA_SUCCESS);
  EXPECT_EQ(shown, memory) << "the beginning, also for a pointer into it";
  unmap(memory);
}

TEST_F(MappedHostMemoryTest, CallsForOtherMemoryRefuseIt) {
  const CUdeviceptr memory = map();
  unsigned* const words = words_at(memory);
  CUipcMemHandle handle{};
  EXPECT_EQ(d.cuMemFreeHost(words), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemHostRegister_v2(words, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemHostUnregister(words), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuIpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE);
  unmap(memory);
}

// The kernel does not end before the host lets it go, so a call that waits would wait for ever.
TEST_F(MappedHostMemoryTest, MakingAndUnmappingItWaitsForNoKernel) {
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Hold hold(function("hold"), stream);
  unmap(map());
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  hold.let_go();
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(MappedHostMemoryTest, OnlyHostMemoryGivesAccessToTheHost) {
  CUmemAllocationProp on_device = properties;
  on_device.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr begin = 0;
  ASSERT_EQ(d.cuMemCreate(&memory, unit, &on_device, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAddressReserve(&begin, unit, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemMap(begin, unit, 0, memory, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_NE(d.cuMemSetAccess(begin, unit, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS);
  unmap(begin);
}

// An H200 keeps CU_MEMHOSTALLOC_PORTABLE only if no earlier memory has room for the new one.
TEST_F(MappedHostMemoryTest, FlagsOfPinnedMemoryAreThoseThatWereAskedForAndMapped) {
  for (const unsigned asked : {0U, 1U, 2U, 3U, 4U, 7U}) {
    void* pinned = nullptr;
    unsigned flags = 0;
    ASSERT_EQ(d.cuMemHostAlloc(&pinned, 64, asked), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemHostGetFlags(&flags, pinned), CUDA_SUCCESS);
    EXPECT_EQ(flags | CU_MEMHOSTALLOC_PORTABLE,
              asked | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    EXPECT_EQ(d.cuMemFreeHost(pinned), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace ctxbroker::test
