// SPDX-License-Identifier: Apache-2.0
// Addresses and the physical memory behind them: a tenant maps its own memory at its own addresses,
// and changes what is its own.
#include <memory>
#include <utility>
#include <vector>

#include "gate/exports.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using Physical = CUmemGenericAllocationHandle;

// Takes the charge for memory of the tenant's code. If the limit has no room for it, tells the host
// and returns null. Throws std::bad_alloc.
std::shared_ptr<const Charge> take_charge(GatedTenant& tenant, Limit limit, std::uint64_t bytes) {
  auto charge = Charge::take(tenant.limits(), limit, bytes);
  if (charge != nullptr) return charge;
  Exports::all().forget_closed();
  charge = Charge::take(tenant.limits(), limit, bytes);
  if (charge == nullptr) log_used_up(tenant, limit, bytes);
  return charge;
}

using Reserve =
    DriverFunction<"cuMemAddressReserve", CUresult(CUdeviceptr*, std::size_t, std::size_t,
                                                   CUdeviceptr, unsigned long long)>;
CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,
                 unsigned long long flags) noexcept {
  const Caller caller = enter_rule<Reserve>();
  if (caller.tenant == nullptr) return Reserve::call(out, bytes, alignment, wanted, flags);
  return make_held(*caller.tenant, Holding{.kind = Kind::reservation, .extent = bytes}, out,
                   [&] { return Reserve::call(out, bytes, alignment, wanted, flags); });
}

using MapPhysical = DriverFunction<"cuMemMap", CUresult(CUdeviceptr, std::size_t, std::size_t,
                                                        Physical, unsigned long long)>;
CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset, Physical memory,
             unsigned long long flags) noexcept {
  const Caller caller = enter_rule<MapPhysical>();
  if (caller.tenant == nullptr) return MapPhysical::call(address, bytes, offset, memory, flags);
  GatedTenant& tenant = *caller.tenant;
  if (!ledger().holds_range(tenant.holder(), Kind::reservation, address, bytes)) {
    return refuse_end(tenant, MapPhysical::symbol, Kind::reservation, address);
  }
  const auto physical = ledger().find(Kind::physical, memory, tenant.holder());
  if (!physical) return refuse_end(tenant, MapPhysical::symbol, Kind::physical, memory);
  CUdeviceptr mapped = address;
  return make_held(
      tenant, Holding{.kind = Kind::mapping, .extent = bytes, .charge = physical->charge}, &mapped,
      [&] { return MapPhysical::call(address, bytes, offset, memory, flags); });
}

// The mappings that these addresses are, whole; none when there is one that the tenant lacks.
std::vector<Holding> take_mappings(const GatedTenant& tenant, std::uint64_t address,
                                   std::uint64_t bytes) {
  std::vector<Holding> taken;
  for (const std::uint64_t end = address + bytes; address < end;) {
    const auto one = ledger().remove(Kind::mapping, address, tenant.holder());
    if (one) {
      taken.push_back(*one);
      address += one->extent;
    }
    if (one && address <= end) continue;
    for (const Holding& part : taken) hold_again(part);
    return {};
  }
  return taken;
}

// The tenants' mappings in these addresses.
std::vector<Holding> take_any_mappings(std::uint64_t address, std::uint64_t bytes) {
  std::vector<Holding> taken;
  for (const std::uint64_t start : ledger().starts_within(Kind::mapping, address, bytes)) {
    if (const auto one = ledger().remove(Kind::mapping, start)) taken.push_back(*one);
  }
  return taken;
}

using Unmap = DriverFunction<"cuMemUnmap", CUresult(CUdeviceptr, std::size_t)>;
CUresult unmap(CUdeviceptr address, std::size_t bytes) noexcept {
  const Caller caller = enter_rule<Unmap>();
  if (caller.tenant == nullptr && !any_gated_tenant()) return Unmap::call(address, bytes);
  try {
    if (caller.tenant == nullptr) {
      for (const std::uint64_t start : ledger().starts_within(Kind::mapping, address, bytes)) {
        const auto refused = refuse_nobody(caller, Unmap::symbol, Kind::mapping, start);
        if (refused) return *refused;
      }
    }
    const std::vector<Holding> taken = caller.tenant != nullptr
                                           ? take_mappings(*caller.tenant, address, bytes)
                                           : take_any_mappings(address, bytes);
    if (taken.empty() && caller.tenant != nullptr) {
      // The driver does not unmap a part of a mapping either.
      if (ledger().holds_range(caller.tenant->holder(), Kind::mapping, address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return refuse_end(*caller.tenant, Unmap::symbol, Kind::mapping, address);
    }
    if (caller.tenant == nullptr) {
      const CUresult status = Unmap::call(address, bytes);
      for (const Holding& one : taken) settle_end(one, status);
      return status;
    }
    CUresult first = CUDA_SUCCESS;
    for (const Holding& one : taken) {
      const CUresult status =
          end_forgotten(*caller.tenant, one, [&] { return Unmap::call(one.handle, one.extent); });
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
  const Caller caller = enter_rule<SetAccess>();
  if (caller.tenant != nullptr &&
      !ledger().holds_range(caller.tenant->holder(), Kind::reservation, address, bytes) &&
      !ledger().holds_range(caller.tenant->holder(), Kind::mapping, address, bytes)) {
    return refuse_end(*caller.tenant, SetAccess::symbol, Kind::mapping, address);
  }
  if (caller.tenant == nullptr) {
    const auto mapping = ledger().find_around(Kind::mapping, address);
    const auto refused = refuse_nobody(caller, SetAccess::symbol, Kind::mapping,
                                       mapping ? mapping->handle : address);
    if (refused) return *refused;
  }
  return SetAccess::call(address, bytes, descriptions, count);
}

using RetainPhysical = DriverFunction<"cuMemRetainAllocationHandle", CUresult(Physical*, void*)>;
CUresult retain(Physical* out, void* address) noexcept {
  const Caller caller = enter_rule<RetainPhysical>();
  if (caller.tenant == nullptr) return RetainPhysical::call(out, address);
  GatedTenant& tenant = *caller.tenant;
  const std::uint64_t value = handle_value(address);
  const auto mapping = ledger().find_around(Kind::mapping, value, tenant.holder());
  if (!mapping) return refuse_end(tenant, RetainPhysical::symbol, Kind::mapping, value);
  const CUresult status = RetainPhysical::call(out, address);
  if (status != CUDA_SUCCESS) return status;
  // The driver may give the handle out that the tenant has: then it is to be released once more.
  hold_once_more(tenant, {.kind = Kind::physical, .handle = *out, .charge = mapping->charge});
  return status;
}

using Release = DriverFunction<"cuMemRelease", CUresult(Physical)>;
CUresult release(Physical memory) noexcept {
  const Caller caller = enter_rule<Release>();
  if (memory == 0 || (caller.tenant == nullptr && !any_gated_tenant())) {
    return Release::call(memory);
  }
  if (caller.tenant == nullptr) {
    const auto refused = refuse_nobody(caller, Release::symbol, Kind::physical, memory);
    if (refused) return *refused;
  }
  const auto held = ledger().remove_reference(
      Kind::physical, memory,
      caller.tenant != nullptr ? std::optional(caller.tenant->holder()) : std::nullopt);
  if (!held) {
    return caller.tenant != nullptr
               ? refuse_end(*caller.tenant, Release::symbol, Kind::physical, memory)
               : Release::call(memory);
  }
  const CUresult status = Release::call(memory);
  if (status == CUDA_SUCCESS) {
    Exports::all().forget_closed();
    return status;
  }
  Holding again = *held;
  again.more_holds = 0;
  try {
    ledger().add_reference(std::move(again));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the context's end frees it
  }
  return status;
}

using CreatePhysical =
    DriverFunction<"cuMemCreate", CUresult(Physical*, std::size_t, const CUmemAllocationProp*,
                                           unsigned long long)>;
CUresult create(Physical* out, std::size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) noexcept {
  const Caller caller = enter_rule<CreatePhysical>();
  if (caller.tenant == nullptr || properties == nullptr) {
    return CreatePhysical::call(out, bytes, properties, flags);
  }
  const Limit limit =
      is_of_host(properties->location) ? Limit::pinned_memory : Limit::device_memory;
  try {
    Holding memory{.kind = Kind::physical, .charge = take_charge(*caller.tenant, limit, bytes)};
    if (memory.charge == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult status = make_held(*caller.tenant, std::move(memory), out, [&] {
      return CreatePhysical::call(out, bytes, properties, flags);
    });
    if (caller.tenant->may_keep_too_much()) give_up_unused(*caller.tenant);
    return status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// ---- memory that is exported and imported again ------------------------------------------------

using ExportPhysical =
    DriverFunction<"cuMemExportToShareableHandle",
                   CUresult(void*, Physical, CUmemAllocationHandleType, unsigned long long)>;
CUresult export_physical(void* out, Physical memory, CUmemAllocationHandleType type,
                         unsigned long long flags) noexcept {
  const Caller caller = enter_rule<ExportPhysical>();
  if (caller.tenant == nullptr) return ExportPhysical::call(out, memory, type, flags);
  GatedTenant& tenant = *caller.tenant;
  const CUresult refused = check_use(tenant, ExportPhysical::symbol, Kind::physical, memory, lent);
  if (refused != CUDA_SUCCESS) return refused;
  const auto held = ledger().find(Kind::physical, memory, tenant.holder());
  const CUresult status = ExportPhysical::call(out, memory, type, flags);
  if (status != CUDA_SUCCESS || !held || held->charge == nullptr) return status;
  try {
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      Exports::all().add(tenant.id(), held->charge, *static_cast<const int*>(out));
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      Exports::all().add(tenant.id(), held->charge, *static_cast<const Exports::Fabric*>(out));
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it counts while it is held
  }
  return status;
}

Exports::Found find_export(const GatedTenant& tenant, void* given, CUmemAllocationHandleType type) {
  if (type == CU_MEM_HANDLE_TYPE_FABRIC && given != nullptr) {
    return Exports::all().find(tenant.id(), *static_cast<const Exports::Fabric*>(given));
  }
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return {};
  return Exports::all().find(tenant.id(), static_cast<int>(reinterpret_cast<std::intptr_t>(given)));
}

using ImportPhysical = DriverFunction<"cuMemImportFromShareableHandle",
                                      CUresult(Physical*, void*, CUmemAllocationHandleType)>;
CUresult import_physical(Physical* out, void* given, CUmemAllocationHandleType type) noexcept {
  const Caller caller = enter_rule<ImportPhysical>();
  const auto import = [&] { return ImportPhysical::call(out, given, type); };
  if (caller.tenant == nullptr || out == nullptr) return import();
  try {
    Exports::Found found = find_export(*caller.tenant, given, type);
    Holding memory{.kind = Kind::physical, .charge = Charge::any_of(std::move(found.own))};
    if (memory.charge == nullptr && !found.of_neighbours.empty()) {
      const Charge& largest = Charge::largest_of(found.of_neighbours);
      memory.charge = take_charge(*caller.tenant, largest.limit(), largest.bytes());
      if (memory.charge == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult status = import();
    if (status != CUDA_SUCCESS) return status;
    // The driver may give the handle out that the tenant has: then it is to be released once more.
    memory.handle = *out;
    hold_once_more(*caller.tenant, std::move(memory));
    return status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

template <SymbolName name, typename... Rest>
using MakesPhysical = Counted<name, Kind::physical, Physical, Rest...>;

constexpr RuleRow physical_rows[] = {
    rule<Reserve, reserve>(),
    row<Ends<"cuMemAddressFree", Kind::reservation, CUdeviceptr, std::size_t>>(),
    rule<MapPhysical, map>(),
    rule<Unmap, unmap>(),
    rule<SetAccess, set_access>(),
    rule<CreatePhysical, create>(),
    rule<ExportPhysical, export_physical>(),
    rule<ImportPhysical, import_physical>(),
    row<MakesPhysical<"cuMulticastCreate", const void*>>(),
    rule<RetainPhysical, retain>(),
    rule<Release, release>(),
};

}  // namespace

constinit const std::span<const RuleRow> virtual_memory_rules = physical_rows;

}  // namespace ctxbroker::detail
