// SPDX-License-Identifier: Apache-2.0
// Questions about an address. Memory of a tenant's store looks like memory of cuMemAlloc or of
// cuMemHostAlloc.
#include "gate/shown.hpp"
#include "gate/stored_memory.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using AttributeOfPointer =
    DriverFunction<"cuPointerGetAttribute", CUresult(void*, CUpointer_attribute, CUdeviceptr)>;

// Returns whether the driver answers something else for memory of a store, or for another caller.
bool is_shown_otherwise(CUpointer_attribute which) noexcept {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return true;
    default:
      return false;
  }
}

// Pinned memory of a store is a part of something larger that belongs to no device. So is small
// memory of cuMemHostAlloc: what the driver says about the mapping is true for both.
void show_pinned(CUpointer_attribute which, void* out, const Holding& stored) noexcept {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = stored.handle;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(out) = stored.host_bytes;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = stored.store->device();
      break;
    default:
      break;
  }
}

// Changes the driver's answer. The driver's memory has a context and no pool.
void show_attribute(const Caller& caller, CUpointer_attribute which, void* out,
                    CUdeviceptr address) noexcept {
  const auto stored = find_stored(address);
  if (which == CU_POINTER_ATTRIBUTE_CONTEXT) {
    auto* const context = static_cast<CUcontext*>(out);
    *context = shown_to(caller, stored ? stored->store->primary() : *context);
  } else if (stored && which == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
    *static_cast<CUmemoryPool*>(out) = nullptr;
  } else if (stored && stored->kind == Kind::host_memory) {
    show_pinned(which, out, *stored);
  }
}

CUresult attribute_of_pointer(void* out, CUpointer_attribute which, CUdeviceptr address) noexcept {
  if (!is_shown_otherwise(which)) return AttributeOfPointer::call(out, which, address);
  const Caller caller = enter_rule<AttributeOfPointer>();
  const CUresult status = AttributeOfPointer::call(out, which, address);
  if (status == CUDA_SUCCESS) show_attribute(caller, which, out, address);
  return status;
}

using AttributesOfPointer =
    DriverFunction<"cuPointerGetAttributes",
                   CUresult(unsigned, CUpointer_attribute*, void**, CUdeviceptr)>;
CUresult attributes_of_pointer(unsigned count, CUpointer_attribute* which, void** out,
                               CUdeviceptr address) noexcept {
  const CUresult status = AttributesOfPointer::call(count, which, out, address);
  if (status != CUDA_SUCCESS) return status;
  for (unsigned i = 0; i < count; ++i) {
    if (!is_shown_otherwise(which[i])) continue;
    const Caller caller = enter_rule<AttributesOfPointer>();
    show_attribute(caller, which[i], out[i], address);
  }
  return status;
}

// The forms without _v2 are those of CUDA 3.1, with addresses and sizes of 32 bits.
template <SymbolName name, typename Address, typename Size>
struct FindsRange {
  using Real = DriverFunction<name, CUresult(Address*, Size*, Address)>;
  static CUresult call(Address* begin, Size* bytes, Address address) noexcept {
    enter_rule<Real>();
    const CUresult status = Real::call(begin, bytes, address);
    if (status != CUDA_SUCCESS) return status;
    const auto stored = find_stored(address, Kind::host_memory);
    if (stored && begin != nullptr) *begin = static_cast<Address>(stored->handle);
    if (stored && bytes != nullptr) *bytes = static_cast<Size>(stored->host_bytes);
    return status;
  }
};

using GetHostFlags = DriverFunction<"cuMemHostGetFlags", CUresult(unsigned*, void*)>;
CUresult get_host_flags(unsigned* flags, void* address) noexcept {
  enter_rule<GetHostFlags>();
  const CUresult status = GetHostFlags::call(flags, address);
  if (status == CUDA_SUCCESS && find_stored(handle_value(address), Kind::host_memory)) {
    *flags = CU_MEMHOSTALLOC_DEVICEMAP;  // the driver keeps CU_MEMHOSTALLOC_PORTABLE by chance
  }
  return status;
}

// Host memory has the same address on the device.
template <SymbolName name, typename Address>
struct FindsDevicePointer {
  using Real = DriverFunction<name, CUresult(Address*, void*, unsigned)>;
  static CUresult call(Address* out, void* address, unsigned flags) noexcept {
    enter_rule<Real>();
    const CUresult status = Real::call(out, address, flags);
    if (status == CUDA_SUCCESS && find_stored(handle_value(address), Kind::host_memory)) {
      *out = static_cast<Address>(handle_value(address));
    }
    return status;
  }
};

// The driver knows no access for memory of cuMemHostAlloc.
using GetAccess = DriverFunction<"cuMemGetAccess",
                                 CUresult(unsigned long long*, const CUmemLocation*, CUdeviceptr)>;
CUresult get_access(unsigned long long* flags, const CUmemLocation* location,
                    CUdeviceptr address) noexcept {
  enter_rule<GetAccess>();
  const CUresult status = GetAccess::call(flags, location, address);
  if (status == CUDA_SUCCESS && find_stored(address, Kind::host_memory)) *flags = 0;
  return status;
}

constexpr RuleRow pointer_rows[] = {
    rule<AttributeOfPointer, attribute_of_pointer>(),
    rule<AttributesOfPointer, attributes_of_pointer>(),
    row<FindsRange<"cuMemGetAddressRange", unsigned, unsigned>>(),
    row<FindsRange<"cuMemGetAddressRange_v2", CUdeviceptr, std::size_t>>(),
    rule<GetHostFlags, get_host_flags>(),
    rule<GetAccess, get_access>(),
    row<FindsDevicePointer<"cuMemHostGetDevicePointer", unsigned>>(),
    row<FindsDevicePointer<"cuMemHostGetDevicePointer_v2", CUdeviceptr>>(),
};

}  // namespace

constinit const std::span<const RuleRow> pointer_rules = pointer_rows;

}  // namespace ctxbroker::detail
