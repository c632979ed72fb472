// SPDX-License-Identifier: Apache-2.0
// Addresses and memory apart: ranges that are reserved, memory that has no address, and mappings of
// the one to the other (cuMemAddressReserve, cuMemCreate, cuMemMap). They belong to no context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class Device;

// Throws CUDA_ERROR_INVALID_VALUE for what cannot be, unless a function says otherwise.
// Thread-safe.
class VirtualMemory {
 public:
  static constexpr std::size_t granularity = std::size_t(2) << 20;  // bytes, as an H200 has it

  // `alignment` 0: the granularity. CUDA_ERROR_OUT_OF_MEMORY.
  CUdeviceptr reserve(std::size_t bytes, std::size_t alignment);
  void free(CUdeviceptr begin, std::size_t bytes);

  // The host, among the devices that have access.
  static constexpr CUdevice host = -1;
  static bool is_host(const CUmemLocation& location) noexcept {
    return location.type == CU_MEM_LOCATION_TYPE_HOST ||
           location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  }

  // Device memory is charged to the device until it has neither handle nor mapping. Host memory is
  // charged to none. `properties` are checked by the caller. CUDA_ERROR_OUT_OF_MEMORY.
  CUmemGenericAllocationHandle create(Device& device, std::size_t bytes,
                                      const CUmemAllocationProp& properties);
  void release(CUmemGenericAllocationHandle handle);
  CUmemAllocationProp properties(CUmemGenericAllocationHandle handle) const;
  // A descriptor of memory that may be shared, which is the caller's to close; and memory of a
  // descriptor, which the caller keeps. The memory of both is one.
  int export_descriptor(CUmemGenericAllocationHandle handle);
  CUmemGenericAllocationHandle import_descriptor(int descriptor);
  // One more use of the handle of what is mapped at the address.
  CUmemGenericAllocationHandle retain(std::uintptr_t address);

  void map(CUdeviceptr begin, std::size_t bytes, std::size_t offset,
           CUmemGenericAllocationHandle handle);
  // Whole mappings, after all work that uses them. The caller sees to the work.
  void unmap(CUdeviceptr begin, std::size_t bytes);
  // Sets the access to whole mappings. Access for one device is access for all. Only host
  // memory gives access to the host.
  void set_access(CUdeviceptr begin, std::size_t bytes, CUdevice who, CUmemAccess_flags flags);
  CUmemAccess_flags access(CUdeviceptr address, CUdevice who) const;
  // Ends everything, as the driver's exit does.
  void forget() noexcept;
  // Returns whether host memory is mapped there.
  bool is_of_host(CUdeviceptr address) const;

  struct Place {
    std::uintptr_t begin = 0;  // of the reserved range
    std::size_t bytes = 0;
    std::uintptr_t mapping_begin = 0;  // of what is mapped there; 0 bytes: nothing
    std::size_t mapping_bytes = 0;
    Device* device = nullptr;  // of that memory, as the following
    CUmemGenericAllocationHandle memory = 0;
    unsigned long long handle_types = 0;
  };
  // Where an address lies; nothing for one that is not reserved.
  std::optional<Place> place(std::uintptr_t address) const;

 private:
  struct Physical;
  struct Mapping {
    std::size_t bytes = 0;
    std::shared_ptr<Physical> memory;
    std::map<CUdevice, CUmemAccess_flags> access;

    bool accessible() const;
    bool accessible_to_devices() const;
  };
  struct Handle {
    std::shared_ptr<Physical> memory;
    unsigned uses = 1;
  };
  using Mappings = std::map<std::uintptr_t, Mapping>;

  CUmemGenericAllocationHandle enter(const std::shared_ptr<Physical>& memory);

  // With mutex_ held.
  Handle& find(CUmemGenericAllocationHandle handle);
  void check_reserved(CUdeviceptr begin, std::size_t bytes) const;
  void check_whole(CUdeviceptr begin, std::size_t bytes) const;  // mapped from end to end
  Mappings::const_iterator mapping_at(std::uintptr_t address) const;

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> reserved_;  // begin -> bytes
  std::map<CUmemGenericAllocationHandle, Handle> handles_;
  Mappings mappings_;
};

}  // namespace ctxbroker::software
