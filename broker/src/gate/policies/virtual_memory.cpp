// Addresses and the physical memory behind them: a tenant maps its own memory at its own addresses,
// and changes what is its own.
#include <vector>

#include "gate/held.hpp"
#include "gate/physical_memory.hpp"
#include "gate/policies.hpp"

namespace ctxbroker::detail {
namespace {

using Physical = CUmemGenericAllocationHandle;

bool holds(const GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept {
  return owners().owner(kind, handle) == tenant.id();
}

using Reserve =
    DriverFunction<"cuMemAddressReserve", CUresult(CUdeviceptr*, std::size_t, std::size_t,
                                                   CUdeviceptr, unsigned long long)>;
CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,
                 unsigned long long flags) noexcept {
  const Caller caller = enter_policy<Reserve>();
  if (caller.tenant == nullptr) return Reserve::call(out, bytes, alignment, wanted, flags);
  return make_held(*caller.tenant, Holding{.kind = Kind::reservation, .extent = bytes}, out,
                   [&] { return Reserve::call(out, bytes, alignment, wanted, flags); });
}

using Map = DriverFunction<"cuMemMap", CUresult(CUdeviceptr, std::size_t, std::size_t, Physical,
                                                unsigned long long)>;
CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, Physical memory,
             unsigned long long flags) noexcept {
  const Caller caller = enter_policy<Map>();
  if (caller.tenant == nullptr) return Map::call(address, bytes, offset, memory, flags);
  GatedTenant& tenant = *caller.tenant;
  if (!owners().holds_range(Kind::reservation, address, bytes, tenant.id())) {
    return refuse_end(tenant, Map::symbol, Kind::reservation, address);
  }
  if (!holds(tenant, Kind::physical, memory)) {
    return refuse_end(tenant, Map::symbol, Kind::physical, memory);
  }
  CUdeviceptr mapped = address;
  return make_held(tenant, Holding{.kind = Kind::mapping, .extent = bytes}, &mapped, [&] {
    const CUresult status = Map::call(address, bytes, offset, memory, flags);
    try {
      if (status == CUDA_SUCCESS) note_mapping(memory, address);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it counts until it is
    }                                  // released, not until it is unmapped
    return status;
  });
}

// The mappings that these addresses are, whole; none when there is one that the tenant lacks.
std::vector<Holding> take_mappings(const GatedTenant& tenant, std::uint64_t address,
                                   std::uint64_t bytes) {
  std::vector<Holding> taken;
  for (const std::uint64_t end = address + bytes; address < end;) {
    const auto one = owners().remove(Kind::mapping, address, tenant.id());
    if (!one) {
      for (const Holding& other : taken) hold_again(other);
      return {};
    }
    taken.push_back(*one);
    address += one->extent;
  }
  return taken;
}

// The tenants' mappings in these addresses.
std::vector<Holding> take_any_mappings(std::uint64_t address, std::uint64_t bytes) {
  std::vector<Holding> taken;
  for (const std::uint64_t start : owners().starts_within(Kind::mapping, address, bytes)) {
    if (const auto one = owners().remove(Kind::mapping, start)) taken.push_back(*one);
  }
  return taken;
}

void settle_unmapping(const Holding& mapping, CUresult status) noexcept {
  if (status != CUDA_SUCCESS) return hold_again(mapping);
  if (pass_on_mapping(mapping)) return;
  if (GatedTenant* const holder = gated_tenant_of(mapping.tenant))
    holder->give_bytes(mapping.bytes);
}

using Unmap = DriverFunction<"cuMemUnmap", CUresult(CUdeviceptr, std::size_t)>;
CUresult unmap(CUdeviceptr address, std::size_t bytes) noexcept {
  const Caller caller = enter_policy<Unmap>();
  if (caller.tenant == nullptr && !any_gated_tenant()) return Unmap::call(address, bytes);
  try {
    const std::vector<Holding> taken = caller.tenant != nullptr
                                           ? take_mappings(*caller.tenant, address, bytes)
                                           : take_any_mappings(address, bytes);
    if (taken.empty() && caller.tenant != nullptr) {
      return refuse_end(*caller.tenant, Unmap::symbol, Kind::mapping, address);
    }
    const CUresult status = Unmap::call(address, bytes);
    for (const Holding& one : taken) settle_unmapping(one, status);
    return status;
  } catch (const std::bad_alloc&) {
    return caller.tenant != nullptr ? CUDA_ERROR_OUT_OF_MEMORY : Unmap::call(address, bytes);
  }
}

// Taking access away from memory that somebody works with ends CUDA for the process.
using SetAccess =
    DriverFunction<"cuMemSetAccess", CUresult(CUdeviceptr, std::size_t, const void*, std::size_t)>;
CUresult set_access(CUdeviceptr address, std::size_t bytes, const void* descriptions,
                    std::size_t count) noexcept {
  const Caller caller = enter_policy<SetAccess>();
  if (caller.tenant != nullptr &&
      !owners().holds_range(Kind::reservation, address, bytes, caller.tenant->id()) &&
      !owners().holds_range(Kind::mapping, address, bytes, caller.tenant->id())) {
    return refuse_end(*caller.tenant, SetAccess::symbol, Kind::mapping, address);
  }
  return SetAccess::call(address, bytes, descriptions, count);
}

using Retain = DriverFunction<"cuMemRetainAllocationHandle", CUresult(Physical*, void*)>;
CUresult retain(Physical* out, void* address) noexcept {
  const Caller caller = enter_policy<Retain>();
  if (caller.tenant == nullptr) return Retain::call(out, address);
  GatedTenant& tenant = *caller.tenant;
  const std::uint64_t value = handle_value(address);
  if (!owners().holds_range(Kind::mapping, value, 1, tenant.id())) {
    return refuse_end(tenant, Retain::symbol, Kind::mapping, value);
  }
  const CUresult status = Retain::call(out, address);
  if (status != CUDA_SUCCESS) return status;
  try {
    // The driver may give the handle out that the tenant has.
    if (holds(tenant, Kind::physical, *out)) {
      note_another_hold(*out);
    } else {
      enter_holding(tenant, {.kind = Kind::physical, .handle = *out});
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as what cannot be entered
  }
  return status;
}

using Release = DriverFunction<"cuMemRelease", CUresult(Physical)>;
CUresult release(Physical memory) noexcept {
  const Caller caller = enter_policy<Release>();
  if (caller.tenant == nullptr && !any_gated_tenant()) return Release::call(memory);
  const auto held = caller.tenant != nullptr
                        ? owners().remove(Kind::physical, memory, caller.tenant->id())
                        : owners().remove(Kind::physical, memory);
  if (!held) {
    return caller.tenant != nullptr
               ? refuse_end(*caller.tenant, Release::symbol, Kind::physical, memory)
               : Release::call(memory);
  }
  const bool goes_on = take_another_hold(memory);
  const CUresult status = Release::call(memory);
  try {
    if (status != CUDA_SUCCESS && goes_on) note_another_hold(memory);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): one release too few is let in
  }
  if (status != CUDA_SUCCESS || goes_on) {
    hold_again(*held);
  } else if (!pass_on_physical(*held)) {
    if (GatedTenant* const holder = gated_tenant_of(held->tenant)) holder->give_bytes(held->bytes);
  }
  return status;
}

template <SymbolName name, auto bytes_of, typename... Rest>
using MakesPhysical = Makes<name, Kind::physical, bytes_of, Physical, Rest...>;

constexpr PolicyRow rows[] = {
    policy<Reserve, reserve>(),
    Ends<"cuMemAddressFree", Kind::reservation, CUdeviceptr, std::size_t>::row(),
    policy<Map, map>(),
    policy<Unmap, unmap>(),
    policy<SetAccess, set_access>(),
    MakesPhysical<"cuMemCreate", bytes_first, std::size_t, const void*, unsigned long long>::row(),
    MakesPhysical<"cuMemImportFromShareableHandle", no_bytes, void*,
                  CUmemAllocationHandleType>::row(),
    MakesPhysical<"cuMulticastCreate", no_bytes, const void*>::row(),
    policy<Retain, retain>(),
    policy<Release, release>(),
};

}  // namespace

std::span<const PolicyRow> virtual_memory_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
