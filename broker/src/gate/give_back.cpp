#include "gate/give_back.hpp"

#include <array>
#include <optional>

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

CUresult end_peer(const Holding& holding) noexcept {
  return end_peer_access(holding.handle);
}

// What stays with code of the tenant that stays in the process, because that goes on using it.
enum class Stays {
  never,
  always,        // a static runtime library's own
  with_runtime,  // what libraries on top of a runtime library keep from one use to the next
};

struct Ending {
  Kind kind;
  CUresult (*end)(const Holding&) noexcept;
  Stays stays;
};
constexpr std::array<Ending, kind_count> endings{{
    {Kind::graph_memory, end<"cuMemFree_v2", CUdeviceptr>, Stays::always},
    {Kind::graph_exec, end<"cuGraphExecDestroy", CUgraphExec>, Stays::always},
    {Kind::graph, end<"cuGraphDestroy", CUgraph>, Stays::always},
    {Kind::event, end<"cuEventDestroy_v2", CUevent>, Stays::always},
    {Kind::stream, end<"cuStreamDestroy_v2", CUstream>, Stays::always},
    {Kind::library, end<"cuLibraryUnload", CUlibrary>, Stays::always},
    {Kind::module, end<"cuModuleUnload", CUmodule>, Stays::always},
    {Kind::array, end<"cuArrayDestroy", CUarray>, Stays::with_runtime},
    {Kind::mipmapped_array, end<"cuMipmappedArrayDestroy", CUmipmappedArray>, Stays::with_runtime},
    {Kind::memory, end<"cuMemFree_v2", CUdeviceptr>, Stays::with_runtime},
    {Kind::host_memory, end<"cuMemFreeHost", void*>, Stays::with_runtime},
    {Kind::registration, end<"cuMemHostUnregister", void*>, Stays::with_runtime},
    {Kind::ipc_memory, end<"cuIpcCloseMemHandle", CUdeviceptr>, Stays::with_runtime},
    {Kind::mapping, end_range<"cuMemUnmap">, Stays::with_runtime},
    {Kind::reservation, end_range<"cuMemAddressFree">, Stays::with_runtime},
    {Kind::physical, end<"cuMemRelease", CUmemGenericAllocationHandle>, Stays::with_runtime},
    {Kind::pool, end<"cuMemPoolDestroy", CUmemoryPool>, Stays::with_runtime},
    {Kind::own_pool, end<"cuMemPoolDestroy", CUmemoryPool>, Stays::with_runtime},
    {Kind::peer_access, end_peer, Stays::with_runtime},
    {Kind::green_context, end<"cuGreenCtxDestroy", CUgreenCtx>, Stays::never},
    {Kind::context, end<"cuCtxDestroy_v2", CUcontext>, Stays::never},
}};

// In the lease it was made in; what was made in none needs none.
CUresult end_one(GatedTenant& tenant, const Holding& holding, const Ending& ending) noexcept {
  if (holding.life == 0) {
    // Of a context that the tenant made: it ends with that, which comes last.
    return holding.context != 0 ? CUDA_SUCCESS : ending.end(holding);
  }
  const auto where = tenant.end_target(holding.life, home_of(holding));
  if (!where) return CUDA_SUCCESS;
  return guarded_end(*where, [&] { return ending.end(holding); });
}

// Work of the tenant that does not end may use it: it is left where it is.
bool is_kept(GatedTenant& tenant, const Holding& holding) noexcept {
  if (!tenant.identity().endless.anywhere()) return false;
  if (holding.life == 0) return holding.context == 0;
  return !tenant.end_target(holding.life, home_of(holding));
}

// Of a context that ends now, nothing stays.
bool ends_with_tenant(GatedTenant& tenant, const Holding& holding) noexcept {
  const Home home = home_of(holding);
  return home != Home::device &&
         (holding.context != 0 || tenant.ends_with_life(holding.life, home));
}

bool stays_with_code(GatedTenant& tenant, const Holding& holding, Stays stays) noexcept {
  if (stays == Stays::always) return true;
  if (stays == Stays::never || !tenant.has_private_tables()) return false;
  return !ends_with_tenant(tenant, holding);
}

// Its handle stays in the code's hands, and must not reach the driver from there any more.
void mark_over(GatedTenant& tenant, const Holding& holding) {
  std::optional<Holding> ended = owners().remove(holding.kind, holding.handle, tenant.id());
  if (!ended) return;  // by its own thread
  tenant.give_bytes(ended->bytes);
  ended->bytes = 0;
  ended->over = true;
  owners().add(*ended);
}

void add_words(std::string& text, std::size_t count, Kind kind) {
  if (count == 0) return;
  text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + to_string(kind);
}

}  // namespace

GivenBack give_back_holdings(GatedTenant& tenant, bool resident) {
  GivenBack given;
  std::array<std::size_t, kind_count> counts{}, of_code{}, kept{};
  for (const Holding& holding : owners().held_by(tenant.id())) {
    const Ending& ending = endings[static_cast<std::size_t>(holding.kind)];
    if (resident && !holding.over && stays_with_code(tenant, holding, ending.stays)) {
      if (ends_with_tenant(tenant, holding)) {
        mark_over(tenant, holding);
      } else {
        ++of_code[static_cast<std::size_t>(holding.kind)];
      }
      continue;
    }
    if (!owners().remove(holding.kind, holding.handle, tenant.id())) continue;  // by its own thread
    if (!holding.over && is_kept(tenant, holding)) {
      ++kept[static_cast<std::size_t>(holding.kind)];
      continue;  // and stays charged
    }
    if (holding.bytes != 0) tenant.give_bytes(holding.bytes);
    if (holding.kind == Kind::mapping) pass_on_mapping(holding);
    if (holding.kind == Kind::physical) pass_on_physical(holding);
    if (holding.kind == Kind::pool || holding.kind == Kind::own_pool) {
      tenant.while_pools_stay([] {});  // who found it there has done with it
    }
    if (holding.over) {
      take_graph_memory(holding.kind, holding.handle);
      continue;  // an earlier tenant's end was its own
    }
    const bool is_gone =
        holding.kind == Kind::graph_memory && !may_be_allocated(tenant, holding.handle);
    const CUresult status = is_gone ? CUDA_ERROR_INVALID_VALUE : end_one(tenant, holding, ending);
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
  for (const Ending& ending : endings) {
    add_words(given.what, counts[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.of_code, of_code[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.kept, kept[static_cast<std::size_t>(ending.kind)], ending.kind);
  }
  return given;
}

}  // namespace ctxbroker::detail
