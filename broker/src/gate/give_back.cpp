#include "gate/give_back.hpp"

#include <array>
#include <mutex>
#include <set>

#include "context/guard.hpp"
#include "gate/graph_memory.hpp"
#include "gate/held.hpp"
#include "gate/peer_access.hpp"
#include "gate/physical_memory.hpp"

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

// As often as it was retained.
CUresult end_physical(const Holding& holding) noexcept {
  CUresult status = end<"cuMemRelease", CUmemGenericAllocationHandle>(holding);
  for (std::uint64_t i = 0; i < holding.extent && status == CUDA_SUCCESS; ++i) {
    status = end<"cuMemRelease", CUmemGenericAllocationHandle>(holding);
  }
  return status;
}

CUresult end_peer(const Holding& holding) noexcept {
  return end_peer_access(holding.handle);
}

struct HowItEnds {
  Kind kind;
  CUresult (*end)(const Holding&) noexcept;
  bool waits = false;  // the driver may wait for work on the device first
};
constexpr std::array<HowItEnds, kind_count> endings{{
    {Kind::graph_memory, end<"cuMemFree_v2", CUdeviceptr>, true},
    {Kind::graph_exec, end<"cuGraphExecDestroy", CUgraphExec>},
    {Kind::graph, end<"cuGraphDestroy", CUgraph>},
    {Kind::event, end<"cuEventDestroy_v2", CUevent>},
    {Kind::stream, end<"cuStreamDestroy_v2", CUstream>},
    {Kind::library, end<"cuLibraryUnload", CUlibrary>, true},
    {Kind::module, end<"cuModuleUnload", CUmodule>, true},
    {Kind::array, end<"cuArrayDestroy", CUarray>, true},
    {Kind::mipmapped_array, end<"cuMipmappedArrayDestroy", CUmipmappedArray>, true},
    {Kind::memory, end<"cuMemFree_v2", CUdeviceptr>, true},
    {Kind::host_memory, end<"cuMemFreeHost", void*>, true},
    {Kind::registration, end<"cuMemHostUnregister", void*>, true},
    {Kind::ipc_memory, end<"cuIpcCloseMemHandle", CUdeviceptr>, true},
    {Kind::mapping, end_range<"cuMemUnmap">, true},
    {Kind::reservation, end_range<"cuMemAddressFree">},
    {Kind::physical, end_physical},
    {Kind::pool, end<"cuMemPoolDestroy", CUmemoryPool>},
    {Kind::own_pool, end<"cuMemPoolDestroy", CUmemoryPool>},
    {Kind::peer_access, end_peer},
    {Kind::green_context, end<"cuGreenCtxDestroy", CUgreenCtx>, true},
    {Kind::context, end<"cuCtxDestroy_v2", CUcontext>, true},
}};

const HowItEnds& how_it_ends(Kind kind) noexcept {
  return endings[static_cast<std::size_t>(kind)];
}

// Of a context that ends now, nothing stays.
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

// In the lease it was made in; what was made in none needs none. No value: it is put off.
// `charge` counts until it has ended.
std::optional<CUresult> end_one(GatedTenant& tenant, const Holding& holding,
                                const HowItEnds& ending, Charge charge) noexcept {
  if (holding.generation == 0) {
    // Of a context that the tenant made: it ends with that, which comes last.
    const CUresult status = holding.context != 0 ? CUDA_SUCCESS : ending.end(holding);
    if (holding.bytes != 0) tenant.give_bytes(holding.bytes);
    return status;
  }
  return end_holding(
      tenant, holding,
      [&tenant, bytes = holding.bytes, charge = std::move(charge)](CUresult) {
        if (bytes != 0) tenant.give_bytes(bytes);
      },
      true);
}

void add_words(std::string& text, std::size_t count, Kind kind) {
  if (count == 0) return;
  text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + to_string(kind);
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

bool waits_for_work(Kind kind) noexcept {
  return how_it_ends(kind).waits;
}

std::optional<CUresult> end_holding(GatedTenant& tenant, const Holding& holding,
                                    std::function<void(CUresult)> settle, bool quiet) noexcept {
  try {
    return tenant.end(
        holding.generation,
        {home_of(holding), to_string(holding.kind), holding.bytes, waits_for_work(holding.kind),
         quiet, [holding] { return how_it_ends(holding.kind).end(holding); }, std::move(settle)});
  } catch (const std::bad_alloc&) {
    return std::nullopt;  // it stays
  }
}

GivenBack give_back_holdings(GatedTenant& tenant, bool resident) {
  GivenBack given;
  std::array<std::size_t, kind_count> counts{}, of_code{}, put_off{};
  for (const Holding& holding : owners().held_by(tenant.id())) {
    const HowItEnds& ending = how_it_ends(holding.kind);
    if (resident && !holding.ended && stays_with_code(tenant, holding)) {
      if (ends_with_tenant(tenant, holding)) {
        tenant.give_bytes(owners().end_with_context(holding.kind, holding.handle, tenant.id()));
      } else {
        ++of_code[static_cast<std::size_t>(holding.kind)];
      }
      continue;
    }
    if (!owners().remove(holding.kind, holding.handle, tenant.id())) continue;  // by its own thread
    Charge charge = take_out_charge(holding.kind, holding.handle);
    if (holding.kind == Kind::pool || holding.kind == Kind::own_pool) {
      tenant.while_pools_stay([] {});  // who found it there has done with it
    }
    if (holding.ended) {
      if (holding.bytes != 0) tenant.give_bytes(holding.bytes);
      take_graph_memory(holding.kind, holding.handle);
      continue;  // an earlier tenant's end was its own
    }
    const bool is_gone =
        holding.kind == Kind::graph_memory && !may_be_allocated(tenant, holding.handle);
    const std::optional<CUresult> ended =
        is_gone ? CUDA_ERROR_INVALID_VALUE : end_one(tenant, holding, ending, std::move(charge));
    if (!ended) {
      ++put_off[static_cast<std::size_t>(holding.kind)];
      continue;
    }
    const CUresult status = *ended == Lease::gone ? CUDA_SUCCESS : *ended;
    if (is_gone && holding.bytes != 0) tenant.give_bytes(holding.bytes);
    if (holding.kind == Kind::graph || holding.kind == Kind::graph_exec) {
      take_graph_memory(holding.kind, holding.handle);  // what it allocates was freed before it
    }
    // Memory that no launch has allocated, or that was freed, is nothing to give back.
    if (holding.kind == Kind::graph_memory && status == CUDA_ERROR_INVALID_VALUE) continue;
    if (given.status == CUDA_SUCCESS && status != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
        status != CUDA_ERROR_DEINITIALIZED) {
      given.status = status;
    }
    if (holding.kind == Kind::own_pool) {  // which the tenant has never asked for
      tenant.forget_pools();
      continue;
    }
    ++counts[static_cast<std::size_t>(holding.kind)];
    ++given.count;
    given.bytes += holding.bytes;
  }
  for (const HowItEnds& ending : endings) {
    add_words(given.what, counts[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.of_code, of_code[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.put_off, put_off[static_cast<std::size_t>(ending.kind)], ending.kind);
  }
  return given;
}

}  // namespace ctxbroker::detail
