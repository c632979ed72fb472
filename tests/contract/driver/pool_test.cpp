// SPDX-License-Identifier: Apache-2.0
// The stream-ordered allocator and its pools.
#include <cstdint>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

CUmemPoolProps properties_of(CUdevice device, std::size_t most = 0) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.maxSize = most;
  return properties;
}

class PoolTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  CUmemoryPool create(std::size_t most = 0) const {
    CUmemoryPool made = nullptr;
    CUmemPoolProps properties = properties_of(device, most);
    EXPECT_EQ(d.cuMemPoolCreate(&made, &properties), CUDA_SUCCESS);
    return made;
  }
  CUdeviceptr allocate(std::size_t bytes, CUmemoryPool pool = nullptr) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(pool == nullptr ? d.cuMemAllocAsync(&address, bytes, stream)
                              : d.cuMemAllocFromPoolAsync(&address, bytes, pool, stream),
              CUDA_SUCCESS);
    return address;
  }
  void free(CUdeviceptr address) const {
    EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  cuuint64_t number(CUmemoryPool pool, CUmemPool_attribute which) const {
    cuuint64_t value = 0;
    EXPECT_EQ(d.cuMemPoolGetAttribute(pool, which, &value), CUDA_SUCCESS) << which;
    return value;
  }
  CUmemoryPool current() const {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(d.cuDeviceGetMemPool(&pool, device), CUDA_SUCCESS);
    return pool;
  }
  CUmemoryPool of_device() const {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(d.cuDeviceGetDefaultMemPool(&pool, device), CUDA_SUCCESS);
    return pool;
  }

  static constexpr std::size_t mib = std::size_t(1) << 20;
  CUstream stream = nullptr;
};

TEST_F(PoolTest, AllocatesAndFreesInTheOrderOfAStream) {
  constexpr unsigned count = 1000;
  CUdeviceptr address = allocate(count * 4);
  EXPECT_EQ(fill(address, 41, count, stream), CUDA_SUCCESS);
  unsigned values[count] = {};
  EXPECT_EQ(d.cuMemcpyDtoHAsync_v2(values, address, sizeof values, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(values[0], 41u);
  EXPECT_EQ(values[count - 1], 41u);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, EachFreeTakesWhatTheOtherAllocated) {
  CUdeviceptr address = allocate(4096);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, DeviceUsesItsDefaultPoolOrTheOneThatIsSet) {
  CUmemoryPool pool = create();
  EXPECT_EQ(current(), of_device());
  EXPECT_EQ(d.cuDeviceSetMemPool(device, pool), CUDA_SUCCESS);
  EXPECT_EQ(current(), pool);
  CUdeviceptr address = allocate(mib);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), mib);
  CUmemoryPool of_address = nullptr;
  EXPECT_EQ(d.cuPointerGetAttribute(&of_address, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(of_address, pool);
  free(address);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(current(), of_device()) << "a destroyed one is not used any longer";
  EXPECT_EQ(d.cuMemPoolDestroy(of_device()), CUDA_ERROR_INVALID_VALUE);
}

#if CUDA_VERSION >= 13000
TEST_F(PoolTest, PoolIsSetAndFoundByLocation) {
  CUmemLocation place = properties_of(device).location;
  constexpr auto pinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemoryPool pool = create(), found = nullptr;
  EXPECT_EQ(d.cuMemGetDefaultMemPool(&found, &place, pinned), CUDA_SUCCESS);
  EXPECT_EQ(found, of_device());
  EXPECT_EQ(d.cuMemSetMemPool(&place, pinned, pool), CUDA_SUCCESS);
  EXPECT_EQ(current(), pool);
  EXPECT_EQ(d.cuMemGetMemPool(&found, &place, pinned), CUDA_SUCCESS);
  EXPECT_EQ(found, pool);
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemGetMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_INVALID),
            CUDA_ERROR_INVALID_VALUE);
}
#endif

TEST_F(PoolTest, PoolCountsItsMemoryAndKeepsTheThreshold) {
  CUmemoryPool pool = create();
  CUdeviceptr address = allocate(8 * mib, pool);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * mib);
  EXPECT_GE(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * mib);
  cuuint64_t threshold = 512 * mib;
  EXPECT_EQ(d.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), threshold);
  free(address);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 8 * mib);
  EXPECT_GE(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * mib) << "below the threshold";
  EXPECT_EQ(d.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  cuuint64_t high = 1;
  EXPECT_EQ(d.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high),
            CUDA_ERROR_INVALID_VALUE)
      << "only to nothing";
  high = 0;
  EXPECT_EQ(d.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high), CUDA_SUCCESS);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  int reuse = 0, reused = 9;
  EXPECT_EQ(d.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reused),
            CUDA_SUCCESS);
  EXPECT_EQ(reused, 0);
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(PoolTest, LivesAsLongAsWhatWasAllocatedFromIt) {
  CUmemoryPool pool = create();
  CUdeviceptr address = allocate(4096, pool);
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, 5, 1024, stream), CUDA_SUCCESS);
  free(address);
}

TEST_F(PoolTest, PoolIsAccessibleToItsOwnDevice) {
  CUmemoryPool pool = create();
  CUmemLocation location = properties_of(device).location;
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_EQ(d.cuMemPoolGetAccess(&flags, pool, &location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemAccessDesc open = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(d.cuMemPoolSetAccess(pool, &open, 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(PoolTest, PoolRefusesBadSizesAndProperties) {
  CUdeviceptr address = 0;
  CUmemoryPool none = nullptr;
  EXPECT_EQ(d.cuMemAllocAsync(nullptr, 64, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemAllocAsync(&address, std::size_t(1) << 50, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(d.cuMemFreeAsync(0x12345, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuMemPoolCreate(&none, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemPoolProps properties = properties_of(device);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(d.cuMemPoolCreate(&none, &properties), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocAsync(&address, 64, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuMemAllocAsync(&address, 64, stream), CUDA_SUCCESS) << "a stream says where";
  EXPECT_EQ(d.cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

// The pool's memory is no context's: it outlives the one in whose stream it was allocated.
TEST_F(PoolTest, OutlivesAContext) {
  CUcontext own = nullptr;
  CUstream in_own = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuCtxCreate_v2(&own, 0, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&in_own, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuMemAllocAsync(&address, 4096, in_own), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamSynchronize(in_own), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxDestroy_v2(own), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, 3, 1024, stream), CUDA_SUCCESS);
  free(address);
}

}  // namespace
}  // namespace ctxbroker::test
