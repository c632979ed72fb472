// SPDX-License-Identifier: Apache-2.0
// Calls that take pinned memory from an arena answer as for the driver's own memory.
#include <string>
#include <vector>

#include "pinned_store_fixture.hpp"

namespace ctxbroker {
namespace {

class PinnedAnswersTest : public PinnedStoreFixture {};

INSTANTIATE_TEST_SUITE_P(Kinds, PinnedAnswersTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return to_string(one.param); });

// Returns all that the driver reports about pinned memory, by inner pointers too.
std::vector<std::string> told_of(void* memory, std::size_t bytes) {
  std::vector<std::string> all;
  const auto tell = [&](const char* what, CUresult status, std::uint64_t value) {
    all.push_back(std::string(what) + ": " + std::to_string(status) + " " +
                  (status == CUDA_SUCCESS ? std::to_string(value) : ""));
  };
  const CUdeviceptr begin = on_device(memory);
  for (const std::size_t offset : {std::size_t{0}, bytes / 2, bytes - 1}) {
    const CUdeviceptr inside = begin + offset;
    void* const pointer = chars_at(memory) + offset;
    const auto ask = [&](CUpointer_attribute which, std::uint64_t but = 0) {
      std::uint64_t value = 0, again = 0;
      const CUresult status =
          driver_call("cuPointerGetAttribute", static_cast<void*>(&value), which, inside);
      tell(("attribute " + std::to_string(which)).c_str(), status, value - but);
      void* out = &again;
      CUpointer_attribute asked = which;
      if (driver_call("cuPointerGetAttributes", 1U, &asked, &out, inside) == CUDA_SUCCESS &&
          status == CUDA_SUCCESS) {
        EXPECT_EQ(again, value) << which;
      }
    };
    ask(CU_POINTER_ATTRIBUTE_CONTEXT, reinterpret_cast<std::uint64_t>(current()));
    ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, begin);
    ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, begin);
    ask(CU_POINTER_ATTRIBUTE_IS_MANAGED);
    ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
    ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, begin);
    ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    ask(CU_POINTER_ATTRIBUTE_MAPPED);
    ask(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
    ask(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
    ask(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
    CUdeviceptr start = 0, shown = 0, *const nowhere = nullptr;
    std::size_t size = 0, *const no_size = nullptr;
    unsigned flags = 0, *const no_flags = nullptr;
    CUresult status = driver_call("cuMemGetAddressRange_v2", &start, &size, inside);
    tell("range's start", status, start - begin);
    tell("range's size", status, size);
    start = size = 0;
    status = driver_call("cuMemGetAddressRange_v2", &start, no_size, inside);
    tell("start alone", status, start - begin);
    status = driver_call("cuMemGetAddressRange_v2", nowhere, &size, inside);
    tell("size alone", status, size);
    status = driver_call("cuMemHostGetDevicePointer_v2", &shown, pointer, 0U);
    tell("device pointer", status, shown - begin);
    tell("device pointer with flags",
         driver_call("cuMemHostGetDevicePointer_v2", &shown, pointer, 1U), 0);
    tell("device pointer nowhere",
         driver_call("cuMemHostGetDevicePointer_v2", nowhere, pointer, 0U), 0);
    status = driver_call("cuMemHostGetFlags", &flags, pointer);
    // An H200 keeps this flag only if no earlier memory has room for the new one.
    tell("flags", status, flags & ~static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
    const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    const auto* const location = &here;
    unsigned long long access = 0;
    status = driver_call("cuMemGetAccess", &access, location, inside);
    tell("access", status, access);
    tell("flags nowhere", driver_call("cuMemHostGetFlags", no_flags, pointer), 0);
  }
  return all;
}

TEST_P(PinnedAnswersTest, MemoryLooksLikeTheDrivers) {
  constexpr std::size_t sizes[] = {1, 4096, 100'000, mib, 3 * mib + 1};
  for (const std::size_t bytes : sizes) {
    for (const unsigned flags : {0U, 1U, 2U, 3U}) {
      std::vector<std::string> answers[2];
      for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
        Tenant tenant = open_with("looks", source);
        tenant.run(0, [&] {
          const bool is_pooled = source == MemorySource::pool;
          void* const memory = pin(bytes, flags);
          EXPECT_EQ(on_device(memory) % 512, 0U);
          EXPECT_EQ(is_stored(memory), is_pooled);
          answers[is_pooled ? 1 : 0] = told_of(memory, bytes);
          EXPECT_EQ(unpin(memory), CUDA_SUCCESS);
        });
      }
      EXPECT_EQ(answers[1], answers[0]) << bytes << ", flags " << flags;
    }
  }
}

TEST_P(PinnedAnswersTest, HostSeesTheSameAnswers) {
  Tenant tenant = open_with("tenant", MemorySource::pool);
  void* const memory = tenant.run(0, [] { return pin(1000); });
  CUcontext const primary = raw.retain_primary(0);
  {
    const Entered entered(raw, primary);
    CUdeviceptr start = 0;
    std::size_t size = 0;
    unsigned flags = 0;
    EXPECT_EQ(driver_call("cuMemGetAddressRange_v2", &start, &size, on_device(memory) + 10),
              CUDA_SUCCESS);
    EXPECT_EQ(start, on_device(memory));
    EXPECT_EQ(size, 1000U);
    EXPECT_EQ(driver_call("cuMemHostGetFlags", &flags, memory), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_MEMHOSTALLOC_DEVICEMAP));
    EXPECT_EQ(unpin(memory), CUDA_SUCCESS) << "the host is not held back";
  }
  raw.call("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_EQ(held(tenant, "pinned host memory").count, 0U);
}

TEST_P(PinnedAnswersTest, WrongCallsAreAnsweredAsForTheDriversOwn) {
  std::vector<CUresult> answers[2];
  std::uint64_t strikes[2] = {};
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    const int row = source == MemorySource::pool ? 1 : 0;
    Tenant tenant = open_with("wrong", source), neighbour = open_with("neighbour", source);
    std::vector<CUresult>& all = answers[row];
    void* const theirs = neighbour.run(0, [&] { return pin(mib); });
    tenant.run(0, [&] {
      void* const address = pin(mib);
      void** const nowhere = nullptr;
      void* const nothing = nullptr;
      CUipcMemHandle handle{};
      all.push_back(driver_call("cuMemHostAlloc", nowhere, mib, 0U));
      all.push_back(driver_call("cuMemAllocHost_v2", nowhere, mib));
      void* none = address;
      all.push_back(driver_call("cuMemHostAlloc", &none, std::size_t{0}, 0U));
      EXPECT_EQ(none, nullptr);
      all.push_back(driver_call("cuMemHostAlloc", &none, mib, 8U));
      all.push_back(driver_call("cuMemFree_v2", on_device(address)));
      all.push_back(driver_call("cuMemHostRegister_v2", address, std::size_t{4096}, 0U));
      all.push_back(driver_call("cuMemHostUnregister", address));
      all.push_back(driver_call("cuIpcGetMemHandle", &handle, on_device(address)));
      all.push_back(unpin(chars_at(address) + 512));
      all.push_back(unpin(address));
      all.push_back(unpin(address));
      all.push_back(unpin(theirs));
      all.push_back(unpin(nothing));
    });
    strikes[row] = tenant.strikes();
  }
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(strikes[1], strikes[0]);
}

TEST_P(PinnedAnswersTest, SizeThatDoesNotFitIsOutOfMemory) {
  Tenant tenant = open_with("large", MemorySource::pool, std::uint64_t{1} << 60);
  tenant.run(0, [&] {
    void* address = nullptr;
    EXPECT_EQ(driver_call("cuMemHostAlloc", &address, std::size_t{1} << 50, 0U),
              CUDA_ERROR_OUT_OF_MEMORY);
  });
}

// The source of its device memory changes then. Pinned memory has no such handles anyway.
TEST_P(PinnedAnswersTest, ProgramThatAsksForAnIpcHandleKeepsItsArena) {
  Tenant tenant = open_with("shares", MemorySource::pool);
  tenant.run(0, [&] {
    CUipcMemHandle handle{};
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, mib), CUDA_SUCCESS);
    EXPECT_NE(driver_call("cuIpcGetMemHandle", &handle, address), CUDA_SUCCESS);
    EXPECT_TRUE(is_stored(pin(mib)));
  });
}

}  // namespace
}  // namespace ctxbroker
