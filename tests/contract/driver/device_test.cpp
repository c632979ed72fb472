// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

using DeviceTest = DriverTest;

TEST_F(DeviceTest, CountsItsDevices) {
  int count = 0;
  EXPECT_EQ(d.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_GE(count, 1);
  EXPECT_EQ(d.cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
  CUdevice found = -1;
  EXPECT_EQ(d.cuDeviceGet(&found, count - 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDeviceGet(&found, count), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuDeviceGet(&found, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuDeviceGet(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, CutsItsNameToTheBuffer) {
  char name[128] = {};
  EXPECT_EQ(d.cuDeviceGetName(name, sizeof name, device), CUDA_SUCCESS);
  EXPECT_GT(std::strlen(name), 4u);
  // The first 64 bytes are written, with zeros behind the name.
  std::string filled(128, 'x');
  EXPECT_EQ(d.cuDeviceGetName(filled.data(), 128, device), CUDA_SUCCESS);
  EXPECT_EQ(filled, std::string(name, 64) + std::string(64, 'x'));
  char start[5] = {};
  EXPECT_EQ(d.cuDeviceGetName(start, sizeof start, device), CUDA_SUCCESS);
  EXPECT_EQ(std::string(start), std::string(name).substr(0, 4));
  EXPECT_EQ(d.cuDeviceGetName(name, sizeof name, 77), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, HasTheAttributesEveryDeviceHas) {
  struct {
    CUdevice_attribute attribute;
    int value;
  } const expected[] = {
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
  };
  for (const auto& row : expected) {
    int value = -1;
    EXPECT_EQ(d.cuDeviceGetAttribute(&value, row.attribute, device), CUDA_SUCCESS);
    EXPECT_EQ(value, row.value) << "attribute " << row.attribute;
  }
}

TEST_F(DeviceTest, AnswersEveryAttributeItsHeaderNames) {
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    int value = 0;
    EXPECT_EQ(d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device),
              CUDA_SUCCESS)
        << attribute;
  }
  int value = 0;
  EXPECT_EQ(d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), device),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), device),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 77),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, AttributesThatEveryDeviceHasAreNotZero) {
  for (const auto attribute : {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                               CU_DEVICE_ATTRIBUTE_MAX_PITCH,
                               CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
                               CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
                               CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
                               CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
                               CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
                               CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
                               CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
                               CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT,
                               CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT,
                               CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                               CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
                               CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
                               CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
                               CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                               CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
                               CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
                               CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
                               CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
                               CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT}) {
    int value = 0;
    EXPECT_EQ(d.cuDeviceGetAttribute(&value, attribute, device), CUDA_SUCCESS);
    EXPECT_GT(value, 0) << attribute;
  }
}

TEST_F(DeviceTest, HasNoLuidOnLinux) {
  char luid[8] = {};
  unsigned mask = 0;
  EXPECT_EQ(d.cuDeviceGetLuid(luid, &mask, device), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DeviceTest, AttributesAgreeWithTheOlderQueries) {
  int major = 0, minor = 0, by_attribute = 0;
  EXPECT_EQ(d.cuDeviceComputeCapability(&major, &minor, device), CUDA_SUCCESS);
  EXPECT_GE(major, 7);
  EXPECT_EQ(
      d.cuDeviceGetAttribute(&by_attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
      CUDA_SUCCESS);
  EXPECT_EQ(major, by_attribute);
  std::size_t total = 0, free = 0, total_by_info = 0;
  EXPECT_EQ(d.cuDeviceTotalMem_v2(&total, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemGetInfo_v2(&free, &total_by_info), CUDA_SUCCESS);
  EXPECT_EQ(total, total_by_info);
  EXPECT_LE(free, total);
  EXPECT_GT(free, 0u);
}

TEST_F(DeviceTest, IsFoundByItsBusId) {
  char id[32] = {};
  EXPECT_EQ(d.cuDeviceGetPCIBusId(id, sizeof id, device), CUDA_SUCCESS);
  EXPECT_EQ(std::strlen(id), 12u) << id;
  CUdevice found = -1;
  EXPECT_EQ(d.cuDeviceGetByPCIBusId(&found, id), CUDA_SUCCESS);
  EXPECT_EQ(found, device);
  EXPECT_EQ(d.cuDeviceGetPCIBusId(id, 12, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDeviceGetPCIBusId(id, 13, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDeviceGetByPCIBusId(&found, "0000:ff:1f.7"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuDeviceGetByPCIBusId(&found, "ff:1f.7"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(d.cuDeviceGetByPCIBusId(&found, "junk"), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, HasAUuidThatStays) {
  CUuuid first = {}, again = {};
  EXPECT_EQ(d.cuDeviceGetUuid_v2(&first, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDeviceGetUuid_v2(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  EXPECT_EQ(d.cuDeviceGetUuid(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  EXPECT_EQ(d.cuDeviceGetUuid_v2(nullptr, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDeviceGetUuid_v2(&again, 77), CUDA_ERROR_INVALID_DEVICE);
  CUuuid none = {};
  EXPECT_NE(std::memcmp(&first, &none, sizeof first), 0);
}

TEST_F(DeviceTest, IsNoPeerOfItself) {
  int can = 1;
  EXPECT_EQ(d.cuDeviceCanAccessPeer(&can, device, device), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(d.cuDeviceCanAccessPeer(&can, device, 77), CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace
}  // namespace ctxbroker::test
