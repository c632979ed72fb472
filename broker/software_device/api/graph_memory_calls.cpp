// Memory that graphs allocate for themselves: none does, as nodes that allocate are not built. So
// there is never any in use or in reserve, and nothing to trim.
#include <cstring>

#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] { find_device(device); });
}

CTXB_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    require_value(value != nullptr && attribute >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT &&
                  attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    std::memset(value, 0, sizeof(cuuint64_t));
  });
}

CTXB_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    require_value(value != nullptr && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                                       attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    cuuint64_t bytes = 0;
    std::memcpy(&bytes, value, sizeof bytes);
    require_value(bytes == 0);  // the only value that a high mark can be given
  });
}
