// SPDX-License-Identifier: Apache-2.0
#include "api/device_attributes.hpp"

#include <algorithm>
#include <iterator>

namespace ctxbroker::software {
namespace {

struct Row {
  CUdevice_attribute attribute;
  int value;
};

// The attributes that are not 0 and do not depend on the settings.
constexpr Row rows[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device_limits::max_threads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device_limits::max_block[0]},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, device_limits::max_block[1]},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device_limits::max_block[2]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device_limits::max_grid[0]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device_limits::max_grid[1]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, device_limits::max_grid[2]},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device_limits::shared_per_block},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device_limits::shared_per_block_optin},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
     device_limits::shared_per_block_optin},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},         // kHz
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},  // kHz
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device_limits::alignment},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, device_limits::alignment},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4194304},  // bytes
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},  // beside one that takes long
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, pci_domain},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device_limits::max_threads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
     device_limits::max_blocks_per_multiprocessor},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 1},  // its memory is the host's
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},  // its memory is of no node of its own
    // Host memory from cuMemCreate, on the one node and on the host. Older headers do not name
    // them.
    {static_cast<CUdevice_attribute>(141), 1},
    {static_cast<CUdevice_attribute>(145), 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, device_limits::max_array_1d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, device_limits::max_array_2d[0]},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, device_limits::max_array_2d[1]},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, device_limits::max_array_3d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, device_limits::max_array_3d},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, device_limits::max_array_3d},
};

}  // namespace

std::optional<int> device_attribute(const Device& device, int attribute) noexcept {
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return std::nullopt;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return static_cast<int>(device.settings.multiprocessors);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return device.settings.compute / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return device.settings.compute % 10;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      return device.settings.mps ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return pci_bus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      return device.ordinal;
    default:
      break;
  }
  const Row* row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& candidate) {
    return static_cast<int>(candidate.attribute) == attribute;
  });
  return row == std::end(rows) ? 0 : row->value;
}

}  // namespace ctxbroker::software
