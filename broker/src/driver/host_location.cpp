// SPDX-License-Identifier: Apache-2.0
#include "driver/host_location.hpp"

namespace ctxbroker::detail {
namespace {

// Their names are younger than the oldest headers that the broker compiles with.
constexpr auto host_numa_id = static_cast<CUdevice_attribute>(134);
constexpr auto makes_memory_on_numa_nodes = static_cast<CUdevice_attribute>(141);
constexpr auto makes_memory_on_the_host = static_cast<CUdevice_attribute>(145);

}  // namespace

std::optional<CUmemLocation> find_host_location(const DriverTable& driver,
                                                CUdevice device) noexcept {
  const auto attribute = [&](CUdevice_attribute which, int otherwise) {
    int value = 0;
    return driver.device_get_attribute(&value, which, device) == CUDA_SUCCESS ? value : otherwise;
  };
  const int node = attribute(host_numa_id, -1);
  if (node >= 0 && attribute(makes_memory_on_numa_nodes, 0) != 0) {
    return CUmemLocation{CU_MEM_LOCATION_TYPE_HOST_NUMA, {node}};
  }
  if (attribute(makes_memory_on_the_host, 0) != 0) {
    return CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, {0}};
  }
  return std::nullopt;
}

}  // namespace ctxbroker::detail
