// Addresses and the physical memory behind them: a tenant maps its own memory at its own addresses,
// and changes what is its own.
#include <utility>
#include <vector>

#include "gate/held.hpp"
#include "gate/physical_memory.hpp"
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

using Physical = CUmemGenericAllocationHandle;

bool holds(const GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept {
  return owners().owner(kind, handle) == tenant.id();
}

void put_back(Kind kind, std::uint64_t handle, Charge charge) noexcept {
  try {
    if (charge != nullptr) put_charge(kind, handle, std::move(charge));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it does not count any more
  }
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
    // Without memory for the charge it counts until it is released.
    if (status == CUDA_SUCCESS) put_back(Kind::mapping, address, charge_of(Kind::physical, memory));
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

void settle_unmapping(const Holding& mapping, Charge charge, CUresult status) noexcept {
  if (status == CUDA_SUCCESS) return;
  hold_again(mapping);
  put_back(mapping.kind, mapping.handle, std::move(charge));
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
    if (caller.tenant == nullptr) {
      std::vector<Charge> charges;
      for (const Holding& one : taken) charges.push_back(take_out_charge(one.kind, one.handle));
      const CUresult status = Unmap::call(address, bytes);
      for (std::size_t i = 0; i < taken.size(); ++i) {
        settle_unmapping(taken[i], std::move(charges[i]), status);
      }
      return status;
    }
    CUresult first = CUDA_SUCCESS;
    for (const Holding& one : taken) {
      Charge charge = take_out_charge(one.kind, one.handle);
      CUresult status = CUDA_SUCCESS;
      if (ends_in_its_time(one)) {
        status = end_in_time(*caller.tenant, one, [one, charge](CUresult ended) {
          settle_unmapping(one, charge, ended);
        });
      } else {
        status = Unmap::call(one.handle, one.extent);
        settle_unmapping(one, std::move(charge), status);
      }
      if (first == CUDA_SUCCESS) first = status;
    }
    return first;
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
  // The driver may give the handle out that the tenant has: then it is to be released once more.
  if (auto held = owners().remove(Kind::physical, *out, tenant.id())) {
    ++held->extent;
    hold_again(*held);
  } else if (enter_holding(tenant, {.kind = Kind::physical, .handle = *out})) {
    put_back(Kind::physical, *out, charge_of(Kind::mapping, value));
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
  const bool is_last = held->extent == 0;
  Charge charge = is_last ? take_out_charge(Kind::physical, memory) : nullptr;
  const CUresult status = Release::call(memory);
  if (status == CUDA_SUCCESS && is_last) return status;
  Holding left = *held;
  if (status == CUDA_SUCCESS) --left.extent;
  hold_again(left);
  put_back(Kind::physical, memory, std::move(charge));
  return status;
}

using Create = DriverFunction<"cuMemCreate",
                              CUresult(Physical*, std::size_t, const void*, unsigned long long)>;
CUresult create(Physical* out, std::size_t bytes, const void* properties,
                unsigned long long flags) noexcept {
  const Caller caller = enter_policy<Create>();
  if (caller.tenant == nullptr) return Create::call(out, bytes, properties, flags);
  try {
    Charge charge = take_charge(*caller.tenant, bytes);
    if (charge == nullptr) {
      log_used_up(*caller.tenant, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult status = make_held(*caller.tenant, Kind::physical, out, 0, [&] {
      const CUresult made = Create::call(out, bytes, properties, flags);
      if (made == CUDA_SUCCESS) put_back(Kind::physical, *out, charge);
      return made;
    });
    if (caller.tenant->may_keep_too_much()) give_up_unused(*caller.tenant);
    return status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

template <SymbolName name, typename... Rest>
using MakesPhysical = Makes<name, Kind::physical, no_bytes, Physical, Rest...>;

constexpr PolicyRow rows[] = {
    policy<Reserve, reserve>(),
    Ends<"cuMemAddressFree", Kind::reservation, CUdeviceptr, std::size_t>::row(),
    policy<Map, map>(),
    policy<Unmap, unmap>(),
    policy<SetAccess, set_access>(),
    policy<Create, create>(),
    MakesPhysical<"cuMemImportFromShareableHandle", void*, CUmemAllocationHandleType>::row(),
    MakesPhysical<"cuMulticastCreate", const void*>::row(),
    policy<Retain, retain>(),
    policy<Release, release>(),
};

}  // namespace

std::span<const PolicyRow> virtual_memory_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
