// SPDX-License-Identifier: Apache-2.0
// Physical memory that is exported, and imported again: it counts as long as it lives.
#include <gmock/gmock.h>
#include <unistd.h>

#include "rules_fixture.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

class ExportedMemoryTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  static constexpr std::size_t unit = 32 * mib;
  static constexpr std::size_t room = unit + unit / 2;  // for one, and not for two
  using Physical = CUmemGenericAllocationHandle;

  static CUmemAllocationProp properties() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return properties;
  }
  static CUresult create(Physical* memory) {
    const CUmemAllocationProp its = properties();
    return driver_call("cuMemCreate", memory, unit, &its, 0ULL);
  }
  static int export_file(Physical memory) {
    int file = -1;
    check_driver_call("cuMemExportToShareableHandle", static_cast<void*>(&file), memory,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
    return file;
  }
  static CUresult import(Physical* memory, int file) {
    return driver_call("cuMemImportFromShareableHandle", memory,
                       reinterpret_cast<void*>(std::intptr_t{file}),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  // Expects, as a control, that the driver itself has the memory and lets anybody import it.
  void expect_import_without_gate(int file) {
    Physical memory = 0;
    EXPECT_EQ(raw.call("cuMemImportFromShareableHandle", &memory,
                       reinterpret_cast<void*>(std::intptr_t{file}),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    raw.check_call("cuMemRelease", memory);
  }
  // The software device's descriptors are files that the system watches for nobody.
  void expect_room_again(const Tenant& tenant) {
    if (driver_is_software()) return;
    Physical memory = 0;
    EXPECT_EQ(create(&memory), CUDA_SUCCESS);
    check_driver_call("cuMemRelease", memory);
    EXPECT_EQ(metrics_of(tenant).held_bytes, 0U);
  }
};

// Imports by the descriptor that was exported, by a copy of it, and by a copy when the first is
// closed.
TEST_P(ExportedMemoryTest, OwnMemoryCountsUntilItsImportIsReleased) {
  for (int way = 0; way < 3; ++way) {
    Tenant tenant = open(broker, "imports", GetParam(), room);
    tenant.run(0, [&] {
      Physical memory = 0, more = 0, imported = 0;
      ASSERT_EQ(create(&memory), CUDA_SUCCESS) << way;
      const int file = export_file(memory);
      const int copy = dup(file);
      if (way == 2) close(file);
      const std::size_t before = raw.free_memory();
      ASSERT_EQ(import(&imported, way == 0 ? file : copy), CUDA_SUCCESS);
      if (way != 2) close(file);
      close(copy);
      check_driver_call("cuMemRelease", memory);
      // This is a control. The software device counts memory with the handle that it was made with.
      EXPECT_TRUE(driver_is_software() || raw.free_memory() <= before) << "it is still taken";
      EXPECT_EQ(create(&more), CUDA_ERROR_OUT_OF_MEMORY) << way;
      EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
      check_driver_call("cuMemRelease", imported);
      expect_room_again(tenant);
    });
    EXPECT_EQ(tenant.strikes(), 0U);
  }
}

// A copy of the descriptor is enough.
TEST_P(ExportedMemoryTest, MemoryCountsThatLivesBehindADescriptorOnly) {
  Tenant tenant = open(broker, "hoards", GetParam(), room);
  tenant.run(0, [&] {
    Physical memory = 0, more = 0;
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    const int file = export_file(memory);
    const int copy = dup(file);
    close(file);
    check_driver_call("cuMemRelease", memory);
    EXPECT_EQ(create(&more), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, unit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(metrics_of(tenant).held_bytes, unit);
    expect_import_without_gate(copy);
    close(copy);
    expect_room_again(tenant);
  });
  tenant.close();
  Tenant next = open(broker, "next", GetParam(), room);
  next.run(0, [&] {
    Physical memory = 0;
    EXPECT_EQ(create(&memory), CUDA_SUCCESS) << "it is in no budget but its tenant's";
    check_driver_call("cuMemRelease", memory);
  });
}

TEST_P(ExportedMemoryTest, NeighboursMemoryCountsWhileItsImportIsHeld) {
  Tenant owner = open(broker, "owner", GetParam());
  Tenant small = open(broker, "small", GetParam(), unit / 2);
  Tenant large = open(broker, "large", GetParam(), room);
  int file = -1;
  owner.run(0, [&] {
    Physical memory = 0;
    ASSERT_EQ(create(&memory), CUDA_SUCCESS);
    file = export_file(memory);
    check_driver_call("cuMemRelease", memory);
  });
  small.run(0, [&] {
    Physical memory = 0;
    EXPECT_EQ(import(&memory, file), CUDA_ERROR_OUT_OF_MEMORY);
    expect_import_without_gate(file);
  });
  EXPECT_EQ(metrics_of(small).held_bytes, 0U);
  for (const bool is_open : {true, false}) {
    const int copy = dup(file);
    if (!is_open) close(file);
    large.run(0, [&] {
      Physical memory = 0, more = 0;
      ASSERT_EQ(import(&memory, copy), CUDA_SUCCESS);
      EXPECT_EQ(metrics_of(large).held_bytes, unit);
      EXPECT_EQ(create(&more), CUDA_ERROR_OUT_OF_MEMORY);
      check_driver_call("cuMemRelease", memory);
      EXPECT_EQ(metrics_of(large).held_bytes, 0U);
    });
    close(copy);
  }
}

INSTANTIATE_TEST_SUITE_P(Leases, ExportedMemoryTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace ctxbroker
