// SPDX-License-Identifier: Apache-2.0
#include "gate/give_back.hpp"

#include <array>
#include <mutex>
#include <set>

#include "context/guard.hpp"
#include "gate/callback.hpp"
#include "gate/exports.hpp"
#include "gate/held.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

// The driver's function that ends one thing of a kind.
template <SymbolName name, typename Handle>
CUresult end(const Holding& holding) noexcept {
  using Real = DriverFunction<name, CUresult(Handle)>;
  if (!Real::is_bound()) return CUDA_ERROR_NOT_SUPPORTED;
  if constexpr (std::is_pointer_v<Handle>) {
    return Real::call(reinterpret_cast<Handle>(holding.handle));
  } else {
    return Real::call(static_cast<Handle>(holding.handle));
  }
}

template <SymbolName name>
CUresult end_range(const Holding& holding) noexcept {
  using Real = DriverFunction<name, CUresult(CUdeviceptr, std::size_t)>;
  return Real::is_bound() ? Real::call(holding.handle, holding.extent) : CUDA_ERROR_NOT_SUPPORTED;
}

// Releases it as often as it was retained.
CUresult end_physical(const Holding& holding) noexcept {
  CUresult status = end<"cuMemRelease", CUmemGenericAllocationHandle>(holding);
  for (std::uint64_t i = 0; i < holding.more_holds && status == CUDA_SUCCESS; ++i) {
    status = end<"cuMemRelease", CUmemGenericAllocationHandle>(holding);
  }
  return status;
}

// With all references that the tenant has. Graphs have their own.
CUresult end_user_object(const Holding& holding) noexcept {
  using Real = DriverFunction<"cuUserObjectRelease", CUresult(CUuserObject, unsigned)>;
  return Real::is_bound() ? Real::call(reinterpret_cast<CUuserObject>(holding.handle),
                                       static_cast<unsigned>(holding.extent))
                          : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult end_peer(const Holding& holding) noexcept {
  return end_peer_access(holding.handle);
}

struct HowItEnds {
  Kind kind;
  CUresult (*end)(const Holding&) noexcept;
};
constexpr std::array<HowItEnds, kind_count> endings{{
    {Kind::graph_memory, end<"cuMemFree_v2", CUdeviceptr>},
    {Kind::graph_exec, end<"cuGraphExecDestroy", CUgraphExec>},
    {Kind::graph, end<"cuGraphDestroy", CUgraph>},
    {Kind::user_object, end_user_object},
    {Kind::event, end<"cuEventDestroy_v2", CUevent>},
    {Kind::stream, end<"cuStreamDestroy_v2", CUstream>},
    {Kind::link, end<"cuLinkDestroy", CUlinkState>},
    {Kind::texture, end<"cuTexObjectDestroy", CUtexObject>},
    {Kind::surface, end<"cuSurfObjectDestroy", CUsurfObject>},
    {Kind::library, end<"cuLibraryUnload", CUlibrary>},
    {Kind::module, end<"cuModuleUnload", CUmodule>},
    {Kind::array, end<"cuArrayDestroy", CUarray>},
    {Kind::mipmapped_array, end<"cuMipmappedArrayDestroy", CUmipmappedArray>},
    {Kind::memory, end<"cuMemFree_v2", CUdeviceptr>},
    {Kind::host_memory, end<"cuMemFreeHost", void*>},
    {Kind::registration, end<"cuMemHostUnregister", void*>},
    {Kind::ipc_memory, end<"cuIpcCloseMemHandle", CUdeviceptr>},
    {Kind::external_memory, end<"cuDestroyExternalMemory", CUexternalMemory>},
    {Kind::external_semaphore, end<"cuDestroyExternalSemaphore", CUexternalSemaphore>},
    {Kind::graphics_resource, end<"cuGraphicsUnregisterResource", CUgraphicsResource>},
    {Kind::mapping, end_range<"cuMemUnmap">},
    {Kind::reservation, end_range<"cuMemAddressFree">},
    {Kind::physical, end_physical},
    {Kind::pool, end<"cuMemPoolDestroy", CUmemoryPool>},
    {Kind::own_pool, end<"cuMemPoolDestroy", CUmemoryPool>},
    {Kind::peer_access, end_peer},
    {Kind::green_context, end<"cuGreenCtxDestroy", CUgreenCtx>},
    {Kind::context, end<"cuCtxDestroy_v2", CUcontext>},
}};
static_assert([] {
  for (std::size_t row = 0; row < kind_count; ++row) {
    if (endings[row].kind != static_cast<Kind>(row)) return false;
  }
  return true;
}());

CUresult end_by_driver(const Holding& holding) noexcept {
  if (holding.store != nullptr) return free_left(holding);
  return endings[static_cast<std::size_t>(holding.kind)].end(holding);
}

// Nothing stays of a context that ends now.
bool ends_with_tenant(GatedTenant& tenant, const Holding& holding) noexcept {
  const Home home = home_of(holding);
  return home != Home::device &&
         (holding.context != 0 || tenant.ends_with_generation(holding.generation, home));
}

// A static runtime library goes on using its own modules, streams and events; libraries on top of
// one keep memory from one use to the next.
bool stays_with_code(GatedTenant& tenant, const Holding& holding) noexcept {
  if (holding.kind <= Kind::module) return true;
  return holding.kind <= Kind::peer_access && tenant.has_private_tables() &&
         !ends_with_tenant(tenant, holding);
}

// Ends a context that the tenant has made itself. No value: it is put off.
std::optional<CUresult> end_own_context(GatedTenant& tenant, const Holding& holding) noexcept {
  const auto family = tenant.primary_family(static_cast<int>(holding.extent));
  if (family == nullptr) {  // the broker knows of no work there
    const CUresult status = end_by_driver(holding);
    stop_counting(holding);
    return status;
  }
  try {
    Ending ending = ending_of(
        holding, [holding] { return end_by_driver(holding); },
        [holding](CUresult) { stop_counting(holding); });
    ending.tenant = tenant.shared_identity();
    ending.quiet = true;
    ending.is_behind_device = true;
    return family->end(std::move(ending));
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

// In the lease it was made in; what was made in none needs none. No value: it is put off.
std::optional<CUresult> end_one(GatedTenant& tenant, const Holding& holding) noexcept {
  if (holding.generation != 0) {
    return end_holding(
        tenant, holding, [holding](CUresult) { stop_counting(holding); }, true);
  }
  if (holding.kind == Kind::context) {
    return end_own_context(tenant, holding);
  }
  // It is of a context that the tenant made, and ends with that one, which comes last.
  const CUresult status = holding.context != 0 ? CUDA_SUCCESS : end_by_driver(holding);
  stop_counting(holding);
  return status;
}

using Fate = LeftThing::Fate;

LeftThing end_left(GatedTenant& tenant, bool resident, const Holding& holding) noexcept {
  const Kind kind = holding.kind;
  if (resident && !holding.ended && stays_with_code(tenant, holding)) {
    if (!ends_with_tenant(tenant, holding)) return {Fate::of_code};
    ledger().end_with_context(kind, holding.handle, tenant.holder());
    return {Fate::not_counted};
  }
  // Its own thread may have ended it meanwhile.
  if (!ledger().remove(kind, holding.handle, tenant.holder())) return {Fate::not_counted};
  if (kind == Kind::pool || kind == Kind::own_pool) {
    tenant.while_pools_stay([] {});  // who found it there has done with it
  }
  const bool is_gone = holding.ended ||  // an earlier tenant's end was its own
                       (kind == Kind::graph_memory && !may_be_allocated(tenant, holding.handle));
  if (is_gone) stop_counting(holding);
  // As soon as it has ended, the driver may give its handle to another graph.
  if (kind == Kind::graph || kind == Kind::graph_exec) {
    forget_graph_memory(kind, holding.handle);  // what it allocates was freed before it
    if (kind == Kind::graph_exec) take_exec_functions(holding.handle);
    forget_parts_of(kind, holding.handle);
  }
  const auto ended = is_gone ? CUDA_SUCCESS : end_one(tenant, holding);
  if (!ended) return {Fate::put_off};
  if (kind == Kind::own_pool) tenant.forget_pools();  // which the tenant has never asked for
  // Memory that no launch has allocated, or that was freed, is nothing to give back.
  const bool was_freed = kind == Kind::graph_memory && *ended == CUDA_ERROR_INVALID_VALUE;
  if (is_gone || was_freed) return {Fate::not_counted};
  if (kind == Kind::own_pool) return {Fate::not_counted, *ended};
  return {is_refusal(*ended) ? Fate::refused : Fate::ended, *ended};
}

}  // namespace

CUresult keep_primary(const DriverTable& driver, CUdevice device) noexcept {
  try {
    // Both are the process's, as the code is, and never ended, because that may run last.
    static auto* const mutex = new std::mutex;
    static auto* const kept = new std::set<CUdevice>;
    const std::lock_guard lock(*mutex);
    if (kept->count(device) != 0) return CUDA_SUCCESS;
    CUcontext context = nullptr;
    const CUresult status = driver.primary_retain(&context, device);
    if (status == CUDA_SUCCESS) kept->insert(device);
    return status;
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

std::optional<CUresult> end_holding(GatedTenant& tenant, const Holding& holding,
                                    std::function<void(CUresult)> settle, bool quiet) noexcept {
  try {
    Ending ending = ending_of(
        holding, [holding] { return end_by_driver(holding); }, std::move(settle));
    ending.quiet = quiet;
    return tenant.end(holding.generation, std::move(ending));
  } catch (const std::bad_alloc&) {
    return std::nullopt;  // it stays
  }
}

void give_back(GatedTenant& tenant, bool resident, const Reason& reason) {
  end_open_captures(tenant);
  give_back(tenant.holder(), reason,
            [&](const Holding& holding) { return end_left(tenant, resident, holding); });
  Exports::all().forget(tenant.id());
}

}  // namespace ctxbroker::detail
