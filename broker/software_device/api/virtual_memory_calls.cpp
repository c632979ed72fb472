// SPDX-License-Identifier: Apache-2.0
// cuMemAddressReserve, cuMemCreate, cuMemMap and their relatives.
#include <cstdint>
#include <cstring>

#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/virtual_memory.hpp"

using namespace ctxbroker::software;

namespace {

VirtualMemory& virtual_memory() {
  return Process::instance().virtual_memory;
}

// There is one NUMA node.
void check_host(const CUmemLocation& location) {
  check_value(VirtualMemory::is_host(location));
  check_value(location.type == CU_MEM_LOCATION_TYPE_HOST || location.id == 0);
}

// The device of memory with these properties: device memory, which other processes may share by
// file descriptor. Host memory is near every device, and is the first one's.
Device& checked_device(const CUmemAllocationProp* properties) {
  check_value(properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
  const CUmemLocation& location = properties->location;
  const auto handles = properties->requestedHandleTypes;
  check_value(location.type != CU_MEM_LOCATION_TYPE_INVALID);
  if (VirtualMemory::is_host(location)) {
    check_host(location);
    check_that(handles == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    return find_device(0);
  }
  check_that(location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 (handles == CU_MEM_HANDLE_TYPE_NONE ||
                  handles == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_NOT_SUPPORTED);
  return find_device(location.id);
}

// Returns who has access at that place, as VirtualMemory counts.
CUdevice checked_holder(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return find_device(location.id).ordinal;
  check_host(location);
  return VirtualMemory::host;
}

void wait_for_all_work() {
  for (const auto& device : Process::instance().devices)
    device->executor.wait(device->executor.pending_everywhere());
}

}  // namespace

CTXB_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                                   const CUmemAllocationProp* properties,
                                                   CUmemAllocationGranularity_flags option) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(granularity != nullptr);
    check_value(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
                option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    checked_device(properties);
    *granularity = VirtualMemory::granularity;
  });
}

CTXB_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes,
                                         std::size_t alignment, CUdeviceptr,
                                         unsigned long long flags) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(address != nullptr && flags == 0);
    *address = virtual_memory().reserve(bytes, alignment);
  });
}

CTXB_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return working([&] { virtual_memory().free(address, bytes); });
}

CTXB_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                                 const CUmemAllocationProp* properties, unsigned long long flags) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(handle != nullptr && flags == 0);
    Device& device = checked_device(properties);
    *handle = virtual_memory().create(device, bytes, *properties);
  });
}

CTXB_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CTXB_COUNT_CALL();
  return working([&] { virtual_memory().release(handle); });
}

CTXB_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                 void* address) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(handle != nullptr);
    *handle = virtual_memory().retain(reinterpret_cast<std::uintptr_t>(address));
  });
}

CTXB_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                            CUmemGenericAllocationHandle handle) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(properties != nullptr);
    *properties = virtual_memory().properties(handle);
  });
}

namespace {

void check_descriptor(CUmemAllocationHandleType type) {
  check_that(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, type == CU_MEM_HANDLE_TYPE_FABRIC
                                                                   ? CUDA_ERROR_NOT_SUPPORTED
                                                                   : CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

CTXB_EXPORT CUresult cuMemExportToShareableHandle(void* shareable,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(shareable != nullptr && flags == 0);
    check_descriptor(type);
    const int descriptor = virtual_memory().export_descriptor(handle);
    std::memcpy(shareable, &descriptor, sizeof descriptor);
  });
}

CTXB_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                    void* shareable,
                                                    CUmemAllocationHandleType type) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(handle != nullptr);
    check_descriptor(type);
    *handle = virtual_memory().import_descriptor(
        static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  });
}

CTXB_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(flags == 0);
    virtual_memory().map(address, bytes, offset, handle);
  });
}

CTXB_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return working([&] {
    // NVIDIA's driver does not wait before it unmaps host memory.
    if (!virtual_memory().is_of_host(address)) wait_for_all_work();
    virtual_memory().unmap(address, bytes);
  });
}

CTXB_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                                    const CUmemAccessDesc* descriptions, std::size_t count) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(descriptions != nullptr && count != 0);
    for (std::size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& one = descriptions[i];
      const CUdevice who = checked_holder(one.location);
      // Reading alone cannot be told from writing: the engines have one list of what is legal.
      check_that(one.flags != CU_MEM_ACCESS_FLAGS_PROT_READ, CUDA_ERROR_NOT_SUPPORTED);
      check_value(one.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                  one.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      if (one.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) wait_for_all_work();
      virtual_memory().set_access(address, bytes, who, one.flags);
    }
  });
}

CTXB_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                    CUdeviceptr address) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(flags != nullptr && location != nullptr);
    *flags = virtual_memory().access(address, checked_holder(*location));
  });
}
