// SPDX-License-Identifier: Apache-2.0
#include "neighbour.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>

#include "support/driver_by_name.hpp"

namespace ctxbroker {
namespace {

constexpr std::size_t bytes = 64;
constexpr unsigned char pattern = 0x5a;
constexpr char image[] = R"(.version 7.0
.target sm_50
.address_size 64
.visible .entry neighbour() { ret; }
)";

void need(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string("the neighbour cannot settle: ") + what + ": " +
                           std::to_string(status));
}

template <typename Handle>
Handle as(void* handle) {
  return static_cast<Handle>(handle);
}

unsigned primary_flags() {
  unsigned flags = 0;
  int active = 0;
  driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active);
  return flags;
}

// What everybody in a context shares.
struct Limit {
  CUlimit which;
  const char* changed;
};
constexpr Limit limits[] = {{CU_LIMIT_STACK_SIZE, "the limit was changed"},
                            {CU_LIMIT_PRINTF_FIFO_SIZE, "the size of printf's buffer was changed"},
                            {CU_LIMIT_MALLOC_HEAP_SIZE, "the size of the heap was changed"}};

CUarray make_array() {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = shape.Height = 16;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  need(driver_call("cuArrayCreate_v2", &array, static_cast<const CUDA_ARRAY_DESCRIPTOR*>(&shape)),
       "an array");
  return array;
}

// Null where the driver makes none.
CUmipmappedArray make_mipmapped() {
  CUmipmappedArray array = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = shape.Height = 16;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  const CUresult status = driver_call("cuMipmappedArrayCreate", &array,
                                      static_cast<const CUDA_ARRAY3D_DESCRIPTOR*>(&shape), 2U);
  return status == CUDA_SUCCESS ? array : nullptr;
}

// Physical memory at addresses of its own; 0 where the driver maps none.
CUdeviceptr map_memory(std::size_t* mapped_bytes) {
  int there = 0;
  driver_call("cuDeviceGetAttribute", &there,
              CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  if (there == 0) return 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  need(driver_call("cuMemGetAllocationGranularity", mapped_bytes,
                   static_cast<const CUmemAllocationProp*>(&properties),
                   CU_MEM_ALLOC_GRANULARITY_MINIMUM),
       "the size of mappings");
  need(driver_call("cuMemCreate", &memory, *mapped_bytes,
                   static_cast<const CUmemAllocationProp*>(&properties), 0ULL),
       "physical memory");
  need(driver_call("cuMemAddressReserve", &address, *mapped_bytes, std::size_t{0}, CUdeviceptr{0},
                   0ULL),
       "addresses");
  need(driver_call("cuMemMap", address, *mapped_bytes, std::size_t{0}, memory, 0ULL), "a mapping");
  need(driver_call("cuMemSetAccess", address, *mapped_bytes, &access, std::size_t{1}), "access");
  return address;
}

}  // namespace

void Neighbour::settle(void* own_context) {
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  need(driver_call("cuMemAlloc_v2", &memory, bytes), "memory");
  need(driver_call("cuMemsetD8_v2", memory, pattern, bytes), "its content");
  need(driver_call("cuMemHostAlloc", &target_.pinned, bytes, 0U), "pinned memory");
  std::fill_n(static_cast<unsigned char*>(target_.pinned), bytes, pattern);
  need(driver_call("cuStreamCreate", &stream, 1U), "a stream");
  need(driver_call("cuEventCreate", &event, 0U), "an event");
  need(driver_call("cuEventRecord", event, stream), "its record");
  // Setting memory goes on after the call.
  need(driver_call("cuCtxSynchronize"), "its work's end");
  need(driver_call("cuModuleLoadData", &module, static_cast<const void*>(image)), "a module");
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    need(driver_call("cuCtxGetLimit", &limits_[i], limits[i].which), "a limit");
  }
  need(driver_call("cuCtxGetCacheConfig", &cache_), "a preference");
  flags_ = primary_flags();
  target_.array = make_array();
  target_.mipmapped = make_mipmapped();
  CUgraphNode node = nullptr;
  need(driver_call("cuGraphCreate", &graph_, 0U), "a graph");
  need(driver_call("cuGraphAddEmptyNode", &node, graph_, static_cast<const CUgraphNode*>(nullptr),
                   std::size_t{0}),
       "a node");
  target_.node = node;
  CUgreenCtx green = nullptr;
  if (driver_call("cuStreamGetGreenCtx", stream, &green) == CUDA_SUCCESS) target_.green = green;
  target_.mapped = map_memory(&target_.mapped_bytes);
  target_.context = own_context;
  target_.stream = stream;
  target_.event = event;
  target_.module = module;
  target_.memory = memory;
}

std::vector<std::string> Neighbour::damage() const {
  std::vector<std::string> found;
  const auto check = [&](bool well, const char* what) {
    if (!well) found.emplace_back(what);
  };
  std::array<unsigned char, bytes> content{};
  const bool readable = driver_call("cuMemcpyDtoH_v2", static_cast<void*>(content.data()),
                                    CUdeviceptr{target_.memory}, bytes) == CUDA_SUCCESS;
  check(readable, "memory is gone");
  const auto kept = [](unsigned char byte) { return byte == pattern; };
  check(!readable || std::all_of(content.begin(), content.end(), kept), "memory was overwritten");
  const bool maps = target_.mapped != 0;
  check(!maps || driver_call("cuMemcpyDtoH_v2", static_cast<void*>(content.data()),
                             CUdeviceptr{target_.mapped}, bytes) == CUDA_SUCCESS,
        "mapped memory is gone");
  void* device_view = nullptr;
  check(
      driver_call("cuMemHostGetDevicePointer_v2", &device_view, target_.pinned, 0U) == CUDA_SUCCESS,
      "pinned memory is gone");
  check(driver_call("cuStreamSynchronize", as<CUstream>(target_.stream)) == CUDA_SUCCESS,
        "the stream is gone");
  check(driver_call("cuEventQuery", as<CUevent>(target_.event)) == CUDA_SUCCESS,
        "the event is gone");
  CUfunction function = nullptr;
  check(driver_call("cuModuleGetFunction", &function, as<CUmodule>(target_.module), "neighbour") ==
            CUDA_SUCCESS,
        "the module is gone");
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    std::size_t limit = 0;
    check(driver_call("cuCtxGetLimit", &limit, limits[i].which) == CUDA_SUCCESS &&
              limit == limits_[i],
          limits[i].changed);
  }
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  check(driver_call("cuCtxGetCacheConfig", &cache) == CUDA_SUCCESS && cache == cache_,
        "the preference for caches was changed");
  CUDA_ARRAY_DESCRIPTOR shape{};
  check(driver_call("cuArrayGetDescriptor_v2", &shape, as<CUarray>(target_.array)) == CUDA_SUCCESS,
        "the array is gone");
  CUarray level = nullptr;
  check(target_.mipmapped == nullptr ||
            driver_call("cuMipmappedArrayGetLevel", &level, as<CUmipmappedArray>(target_.mipmapped),
                        0U) == CUDA_SUCCESS,
        "the array with levels is gone");
  std::size_t nodes = 0;
  check(driver_call("cuGraphGetNodes", graph_, static_cast<CUgraphNode*>(nullptr), &nodes) ==
                CUDA_SUCCESS &&
            nodes == 1,
        "the graph has another number of nodes");
  check(primary_flags() == flags_, "the primary's flags were changed");

  CUcontext here = nullptr;
  driver_call("cuCtxGetCurrent", &here);
  bool allocates = false;
  std::thread([&] {
    CUdeviceptr more = 0;
    driver_call("cuCtxPushCurrent_v2", here);
    allocates = driver_call("cuMemAlloc_v2", &more, bytes) == CUDA_SUCCESS;
    if (allocates) driver_call("cuMemFree_v2", more);
    driver_call("cuCtxPopCurrent_v2", &here);
  }).join();
  check(allocates, "another thread cannot allocate");
  return found;
}

}  // namespace ctxbroker
