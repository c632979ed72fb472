// SPDX-License-Identifier: Apache-2.0
// Advice about managed memory, and prefetches of it.
#include <array>
#include <cstdint>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

constexpr CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, {0}};

class ManagedTest : public KernelTest {
 protected:
  static constexpr std::size_t half = std::size_t(2) << 20, all = 2 * half;  // bytes

  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int concurrent = 0;
    ASSERT_EQ(
        d.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device),
        CUDA_SUCCESS);
    if (concurrent == 0) GTEST_SKIP() << "this device and the host take turns with managed memory";
    ASSERT_EQ(d.cuMemAllocManaged(&managed, all, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemAlloc_v2(&plain, 4096), CUDA_SUCCESS);
  }
  CUmemLocation here() const { return {CU_MEM_LOCATION_TYPE_DEVICE, {device}}; }
  int ask(CUmem_range_attribute which, CUdeviceptr address, std::size_t bytes) const {
    int value = 99;
    EXPECT_EQ(d.cuMemRangeGetAttribute(&value, sizeof value, which, address, bytes), CUDA_SUCCESS)
        << which;
    return value;
  }

  CUdeviceptr managed = 0, plain = 0;
};

TEST_F(ManagedTest, ReadMostlyOfARangeNeedsAllItsPages) {
  constexpr auto read_mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  EXPECT_EQ(ask(read_mostly, managed, all), 0);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, half, CU_MEM_ADVISE_SET_READ_MOSTLY, here()), CUDA_SUCCESS);
  EXPECT_EQ(ask(read_mostly, managed, half), 1);
  EXPECT_EQ(ask(read_mostly, managed + half, half), 0);
  EXPECT_EQ(ask(read_mostly, managed, all), 0);
  EXPECT_EQ(d.cuMemAdvise(managed + half, half, CU_MEM_ADVISE_SET_READ_MOSTLY, device),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(read_mostly, managed, all), 1);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here()), CUDA_SUCCESS);
  EXPECT_EQ(ask(read_mostly, managed, half), 0);
}

TEST_F(ManagedTest, APreferredLocationIsRemembered) {
  constexpr auto preferred = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
  constexpr auto type = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE;
  constexpr auto id = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID;
  constexpr auto set = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  EXPECT_EQ(ask(preferred, managed, all), CU_DEVICE_INVALID);
  EXPECT_EQ(ask(type, managed, all), CU_MEM_LOCATION_TYPE_INVALID);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, set, here()), CUDA_SUCCESS);
  EXPECT_EQ(ask(preferred, managed, all), device);
  EXPECT_EQ(ask(type, managed, all), CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(ask(id, managed, all), device);
  EXPECT_EQ(d.cuMemAdvise(managed + half, half, set, CU_DEVICE_CPU), CUDA_SUCCESS);
  EXPECT_EQ(ask(preferred, managed, half), device);
  EXPECT_EQ(ask(preferred, managed + half, half), CU_DEVICE_CPU);
  EXPECT_EQ(ask(type, managed + half, half), CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(ask(preferred, managed, all), CU_DEVICE_INVALID) << "its halves differ";
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, host),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(preferred, managed, half), CU_DEVICE_INVALID);
}

TEST_F(ManagedTest, AccessedByAdviceOfARangeIsRemembered) {
  const auto accessed_by = [&] {
    std::array<int, 2> devices = {99, 99};
    EXPECT_EQ(d.cuMemRangeGetAttribute(devices.data(), sizeof devices,
                                       CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, managed, all),
              CUDA_SUCCESS);
    return devices;
  };
  using Devices = std::array<int, 2>;
  EXPECT_EQ(accessed_by(), (Devices{CU_DEVICE_INVALID, CU_DEVICE_INVALID}));
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, CU_MEM_ADVISE_SET_ACCESSED_BY, here()), CUDA_SUCCESS);
  EXPECT_EQ(accessed_by(), (Devices{device, CU_DEVICE_INVALID}));
  EXPECT_EQ(d.cuMemAdvise_v2(managed, half, CU_MEM_ADVISE_UNSET_ACCESSED_BY, here()), CUDA_SUCCESS);
  EXPECT_EQ(accessed_by(), (Devices{CU_DEVICE_INVALID, CU_DEVICE_INVALID})) << "not all of it";
}

TEST_F(ManagedTest, PrefetchesAreInTheStreamsOrderAndChangeNoData) {
  constexpr auto last = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
  constexpr auto type = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE;
  auto* const words = reinterpret_cast<volatile unsigned*>(managed);
  words[0] = 1;
  words[all / 4 - 1] = 2;
  EXPECT_EQ(ask(last, managed, all), CU_DEVICE_INVALID);
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUevent done = nullptr;
  ASSERT_EQ(d.cuEventCreate(&done, 0), CUDA_SUCCESS);
  {
    Hold hold(function("hold"), stream);
    EXPECT_EQ(d.cuMemPrefetchAsync_v2(managed, all, here(), 0, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventRecord(done, stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventQuery(done), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(d.cuEventSynchronize(done), CUDA_SUCCESS);
  EXPECT_EQ(ask(last, managed, all), device);
  CUdeviceptr address = managed;
  unsigned count = 1;
  void* arguments[] = {&address, &count};
  EXPECT_EQ(launch("add_one", stream, arguments), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemPrefetchAsync(managed, half, CU_DEVICE_CPU, stream), CUDA_SUCCESS);
  EXPECT_EQ(ask(last, managed, half), CU_DEVICE_CPU);
  EXPECT_EQ(ask(type, managed, half), CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(ask(last, managed, all), CU_DEVICE_INVALID) << "its halves differ";
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 2u);
  EXPECT_EQ(words[all / 4 - 1], 2u);
}

TEST_F(ManagedTest, SeveralRangeAttributesAreReadAtOnce) {
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, CU_MEM_ADVISE_SET_READ_MOSTLY, here()), CUDA_SUCCESS);
  int read_mostly = 99, preferred = 99;
  CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                   CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  void* values[] = {&read_mostly, &preferred};
  std::size_t sizes[] = {sizeof read_mostly, sizeof preferred};
  EXPECT_EQ(d.cuMemRangeGetAttributes(values, sizes, which, 2, managed, all), CUDA_SUCCESS);
  EXPECT_EQ(read_mostly, 1);
  EXPECT_EQ(preferred, CU_DEVICE_INVALID);
  sizes[1] = 1;
  EXPECT_EQ(d.cuMemRangeGetAttributes(values, sizes, which, 2, managed, all),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedTest, OtherMemoryAndBadAdviceAreRefused) {
  constexpr auto invalid = CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, {77}};
  int value = 0;
  EXPECT_EQ(d.cuMemAdvise_v2(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here()), invalid);
  EXPECT_EQ(d.cuMemPrefetchAsync_v2(plain, 4096, here(), 0, nullptr), invalid);
  EXPECT_EQ(d.cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                     plain, 4096),
            invalid);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here()), invalid);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, static_cast<CUmem_advise>(99), here()), invalid);
  EXPECT_EQ(d.cuMemAdvise_v2(managed, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere), invalid);
  EXPECT_EQ(d.cuMemPrefetchAsync_v2(managed, all, nowhere, 0, nullptr), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuMemPrefetchAsync_v2(managed, all, here(), 1, nullptr), invalid);
  EXPECT_EQ(d.cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, all),
            invalid);
  EXPECT_EQ(d.cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, managed, all),
            invalid);
  EXPECT_EQ(
      d.cuMemRangeGetAttribute(&value, 4, static_cast<CUmem_range_attribute>(99), managed, all),
      invalid);
}

#if CUDA_VERSION >= 13000
TEST_F(ManagedTest, PrefetchBatchTakesSeveralRanges) {
  if (d.cuMemPrefetchBatchAsync == nullptr) GTEST_SKIP() << "this driver is older";
  CUstream stream = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  auto* const words = reinterpret_cast<volatile unsigned*>(managed);
  words[0] = 1;
  words[half / 4] = 2;
  CUdeviceptr ranges[] = {managed, managed + half};
  std::size_t sizes[] = {half, half};
  CUmemLocation places[] = {here(), host};
  std::size_t firsts[] = {0, 1};
  EXPECT_EQ(d.cuMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 2, 0, stream),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[half / 4], 2u);
  EXPECT_NE(d.cuMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 2, 0, nullptr),
            CUDA_SUCCESS);
  firsts[0] = 1;
  EXPECT_NE(d.cuMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 1, 0, stream),
            CUDA_SUCCESS);
  firsts[0] = 0;
  // Discarded memory is undefined until it is written again. The rest keeps its values.
  EXPECT_EQ(d.cuMemDiscardBatchAsync(ranges, sizes, 1, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemDiscardAndPrefetchBatchAsync(ranges, sizes, 1, places, firsts, 1, 0, stream),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32Async(managed, 7, half / 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[half / 4], 2u);
  ranges[0] = plain;
  sizes[0] = 4096;
  EXPECT_NE(d.cuMemDiscardBatchAsync(ranges, sizes, 1, 0, stream), CUDA_SUCCESS);
}
#endif

}  // namespace
}  // namespace ctxbroker::test
