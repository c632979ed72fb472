// SPDX-License-Identifier: Apache-2.0
// Addresses and the physical memory behind them: a tenant maps its own memory at its own addresses,
// and changes what is its own.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using Physical = CUmemGenericAllocationHandle;

// Counts as memory of the tenant's code until the last of these is gone. Null: the limit has no
// room for it. Throws std::bad_alloc.
std::shared_ptr<const void> take_charge(GatedTenant& tenant, Limit limit, std::uint64_t bytes) {
  Budget& budget = tenant.limits().of(limit);
  if (!budget.take(bytes)) return nullptr;
  return {static_cast<const void*>(&budget), [&budget, bytes](const void*) { budget.give(bytes); }};
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
  if (status == CUDA_SUCCESS) return status;
  Holding again = *held;
  again.extent = 0;
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
    if (memory.charge == nullptr) {
      log_used_up(*caller.tenant, limit, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
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

// Physical memory that tenants have exported and that still counts. One for the process, because a
// descriptor is: another tenant may import what one has exported.
struct Export {
  std::weak_ptr<const void> charge;  // of the memory
  TenantId tenant;
  int file = -1;  // the descriptor that the driver gave
};
struct Exports {
  std::mutex mutex;
  std::vector<Export> all;

  static Exports& one() {
    static auto* const exports = new Exports;  // threads of plug-ins may import until the end
    return *exports;
  }
};

// Returns whether both descriptors are of one open file. False where the system does not tell.
bool is_same_file(int one, int other) noexcept {
  constexpr int kcmp_file = 0;
  return one == other || syscall(SYS_kcmp, getpid(), getpid(), kcmp_file, one, other) == 0;
}

// Returns what the imported memory counts as, so that it counts as long as the import is held: all
// memory that the tenant has exported and that this one may be. The driver does not tell which it
// is; the descriptor does, while the one that was exported is open.
std::shared_ptr<const void> charge_of_import(const GatedTenant& tenant, int file) {
  std::vector<std::shared_ptr<const void>> charges;
  Exports& exports = Exports::one();
  const std::lock_guard lock(exports.mutex);
  std::erase_if(exports.all, [](const Export& one) { return one.charge.expired(); });
  for (const Export& one : exports.all) {
    if (one.tenant != tenant.id() || !is_same_file(one.file, file)) continue;
    return one.charge.lock();
  }
  for (const Export& one : exports.all) {
    // Its descriptor is open, and is of another file.
    if (one.tenant != tenant.id() || fcntl(one.file, F_GETFD) != -1) continue;
    charges.push_back(one.charge.lock());
  }
  if (charges.empty()) return nullptr;
  return std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(charges));
}

using ExportPhysical =
    DriverFunction<"cuMemExportToShareableHandle",
                   CUresult(void*, Physical, CUmemAllocationHandleType, unsigned long long)>;
CUresult export_physical(void* out, Physical memory, CUmemAllocationHandleType type,
                         unsigned long long flags) noexcept {
  const Caller caller = enter_rule<ExportPhysical>();
  if (caller.tenant == nullptr) return ExportPhysical::call(out, memory, type, flags);
  CUresult status = check_use(*caller.tenant, ExportPhysical::symbol, Kind::physical, memory, lent);
  if (status != CUDA_SUCCESS) return status;
  status = ExportPhysical::call(out, memory, type, flags);
  if (status != CUDA_SUCCESS || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return status;
  const auto held = ledger().find(Kind::physical, memory, caller.tenant->holder());
  if (!held || held->charge == nullptr) return status;
  try {
    Exports& exports = Exports::one();
    const std::lock_guard lock(exports.mutex);
    exports.all.push_back({held->charge, caller.tenant->id(), *static_cast<const int*>(out)});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): its import does not count
  }
  return status;
}

using ImportPhysical = DriverFunction<"cuMemImportFromShareableHandle",
                                      CUresult(Physical*, void*, CUmemAllocationHandleType)>;
CUresult import_physical(Physical* out, void* given, CUmemAllocationHandleType type) noexcept {
  const Caller caller = enter_rule<ImportPhysical>();
  const auto import = [&] { return ImportPhysical::call(out, given, type); };
  if (caller.tenant == nullptr || out == nullptr) return import();
  try {
    Holding memory{.kind = Kind::physical};
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
      memory.charge = charge_of_import(*caller.tenant, file);
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
