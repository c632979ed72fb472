// SPDX-License-Identifier: Apache-2.0
// cuDevice*GraphMem*: the memory that graphs allocate for themselves, of all graphs together.
#include <cstring>

#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/graph_memory.hpp"

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] { trim_graph_memory(find_device(device)); });
}

CTXB_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    const GraphMemoryFigures figures = graph_memory_figures(find_device(device));
    check_value(value != nullptr && attribute >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT &&
                attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    const cuuint64_t bytes[] = {figures.used, figures.used_high, figures.reserved,
                                figures.reserved_high};
    std::memcpy(value, &bytes[attribute - CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT], sizeof bytes[0]);
  });
}

CTXB_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    const Device& found = find_device(device);
    check_value(value != nullptr && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                                     attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    cuuint64_t bytes = 0;
    std::memcpy(&bytes, value, sizeof bytes);
    check_value(bytes == 0);  // the only value that a high mark can be given
    reset_graph_memory_high(found, attribute);
  });
}
