// SPDX-License-Identifier: Apache-2.0
// What cuPointerGetAttribute tells of each kind of memory, and cuPointerSetAttribute.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class PointerTest : public KernelTest {
 protected:
  template <class Value>
  Value attribute(CUpointer_attribute which, CUdeviceptr address) const {
    Value value{};
    EXPECT_EQ(d.cuPointerGetAttribute(&value, which, address), CUDA_SUCCESS) << which;
    return value;
  }
  CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  // Does the call return only when work that is ahead of it is done?
  bool waits(const std::function<CUresult()>& call) const {
    Hold hold(function("hold"), nullptr);
    std::atomic<bool> released = false;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      released = true;
      hold.let_go();
    });
    EXPECT_EQ(call(), CUDA_SUCCESS);
    const bool waited = released;
    later.join();
    return waited;
  }
};

TEST_F(PointerTest, PointerAttributesTellKindsOfMemoryApart) {
  const CUdeviceptr plain = allocate(4096);
  void *pinned = nullptr, *pages = std::aligned_alloc(4096, 8192);
  const std::unique_ptr<void, void (*)(void*)> owner(pages, std::free);
  CUdeviceptr managed = 0, pooled = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(d.cuMemAllocHost_v2(&pinned, 4096), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemHostRegister_v2(pages, 8192, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(d.cuDeviceGetMemPool(&pool, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocAsync(&pooled, 4096, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  const struct {
    const char* what;
    CUdeviceptr address;
    bool on_host, managed, shares;
    CUmemoryPool pool;
  } kinds[] = {{"device", plain, false, false, true, nullptr},
               {"pinned", device_address(pinned), true, false, false, nullptr},
               {"registered", device_address(pages), true, false, false, nullptr},
               {"managed", managed, true, true, false, nullptr},
               {"pooled", pooled, false, false, false, pool}};
  std::set<unsigned long long> ids;
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.what);
    const CUdeviceptr inside = kind.address + 64;
    EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
    EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), device);
    EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) != 0, kind.managed);
    EXPECT_NE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 0u);
    EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) != 0,
              kind.shares);
    EXPECT_EQ(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside), kind.pool);
    EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), kind.address);
    EXPECT_GE(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 4096u);
    EXPECT_TRUE(
        ids.insert(attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside)).second);
    CUdeviceptr at = 99;
    EXPECT_EQ(d.cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
              kind.on_host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (kind.on_host) {
      EXPECT_EQ(at, inside);
    }
    if (!kind.managed) {
      EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
                unsigned(kind.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    }
  }
  EXPECT_EQ(d.cuMemHostUnregister(pages), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(pooled), CUDA_SUCCESS);
}

TEST_F(PointerTest, EveryAttributeThatAnApplicationCanUseIsToldOfDeviceMemory) {
  const CUdeviceptr address = allocate(4096);
  for (int which = CU_POINTER_ATTRIBUTE_CONTEXT; which <= CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
       ++which) {
    if (which == CU_POINTER_ATTRIBUTE_P2P_TOKENS || which == CU_POINTER_ATTRIBUTE_HOST_POINTER)
      continue;
    unsigned long long value[2] = {};
    EXPECT_EQ(d.cuPointerGetAttribute(value, static_cast<CUpointer_attribute>(which), address),
              CUDA_SUCCESS)
        << which;
  }
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address),
            unsigned(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  const auto mapping = attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address);
  const auto bytes = attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address);
  EXPECT_LE(mapping, address);
  EXPECT_GE(mapping + bytes, address + 4096);
}

TEST_F(PointerTest, MappedMemoryTellsOfItsRangeAndOfItsMapping) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t unit = 0;
  ASSERT_EQ(d.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_EQ(d.cuMemAddressReserve(&range, 3 * unit, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemCreate(&memory, unit, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemMap(range + unit, unit, 0, memory, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(d.cuMemSetAccess(range + unit, unit, &access, 1), CUDA_SUCCESS);
  const CUdeviceptr inside = range + unit + 64;
  EXPECT_NE(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 0u);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), range);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 3 * unit);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), range + unit);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), unit);
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 0u);
  EXPECT_EQ(attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside),
            std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside),
            unsigned(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  // Nothing is told of addresses that are only reserved.
  unsigned none = 0;
  EXPECT_EQ(d.cuPointerGetAttribute(&none, CU_POINTER_ATTRIBUTE_MAPPED, range),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemUnmap(range + unit, unit), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(range, 3 * unit), CUDA_SUCCESS);
}

TEST_F(PointerTest, SynchronousCallsWaitWhereThePointerSaysSo) {
  const CUdeviceptr quick = allocate(64), slow = allocate(64);
  constexpr auto sync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  unsigned yes = 1, no = 0;
  EXPECT_EQ(attribute<unsigned>(sync, slow), 0u);
  EXPECT_EQ(d.cuPointerSetAttribute(&yes, sync, slow), CUDA_SUCCESS);
  EXPECT_EQ(attribute<unsigned>(sync, slow), 1u);
  EXPECT_EQ(attribute<unsigned>(sync, quick), 0u);
  EXPECT_FALSE(waits([&] { return d.cuMemsetD8_v2(quick, 1, 64); }));
  EXPECT_TRUE(waits([&] { return d.cuMemsetD8_v2(slow, 1, 64); }));
  EXPECT_TRUE(waits([&] { return d.cuMemcpyDtoD_v2(slow, quick, 64); }));
  EXPECT_TRUE(waits([&] { return d.cuMemcpyDtoD_v2(quick, slow, 64); }));
  EXPECT_EQ(d.cuPointerSetAttribute(&no, sync, slow), CUDA_SUCCESS);
  EXPECT_FALSE(waits([&] { return d.cuMemsetD8_v2(slow, 1, 64); }));
}

TEST_F(PointerTest, OnlySynchronousOperationsCanBeSet) {
  const CUdeviceptr address = allocate(64);
  unsigned value = 1;
  constexpr auto sync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  EXPECT_EQ(d.cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, address),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuPointerSetAttribute(nullptr, sync, address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuPointerSetAttribute(&value, sync, 0x1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(d.cuPointerSetAttribute(&value, sync, address), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace ctxbroker::test
