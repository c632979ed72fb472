#include "gate/give_back.hpp"

#include <array>

#include "context/guard.hpp"
#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

// The driver's function that ends one thing of a kind.
template <SymbolName name, typename Handle>
CUresult end(std::uint64_t value) noexcept {
  using Real = DriverFunction<name, CUresult(Handle)>;
  if (!Real::is_bound()) return CUDA_ERROR_NOT_SUPPORTED;
  if constexpr (std::is_pointer_v<Handle>) {
    return Real::call(reinterpret_cast<Handle>(value));
  } else {
    return Real::call(static_cast<Handle>(value));
  }
}

struct Ending {
  Kind kind;
  CUresult (*end)(std::uint64_t) noexcept;
  bool of_code;  // used by code of the tenant that may stay in the process
};
constexpr std::array<Ending, kind_count> endings{{
    {Kind::graph_exec, end<"cuGraphExecDestroy", CUgraphExec>, true},
    {Kind::graph, end<"cuGraphDestroy", CUgraph>, true},
    {Kind::event, end<"cuEventDestroy_v2", CUevent>, true},
    {Kind::stream, end<"cuStreamDestroy_v2", CUstream>, true},
    {Kind::library, end<"cuLibraryUnload", CUlibrary>, true},
    {Kind::module, end<"cuModuleUnload", CUmodule>, true},
    {Kind::array, end<"cuArrayDestroy", CUarray>, false},
    {Kind::mipmapped_array, end<"cuMipmappedArrayDestroy", CUmipmappedArray>, false},
    {Kind::memory, end<"cuMemFree_v2", CUdeviceptr>, false},
    {Kind::host_memory, end<"cuMemFreeHost", void*>, false},
    {Kind::registration, end<"cuMemHostUnregister", void*>, false},
    {Kind::ipc_memory, end<"cuIpcCloseMemHandle", CUdeviceptr>, false},
    {Kind::reservation, nullptr, false},  // still mapped, as far as one knows
    {Kind::physical, end<"cuMemRelease", CUmemGenericAllocationHandle>, false},
    {Kind::pool, end<"cuMemPoolDestroy", CUmemoryPool>, false},
    {Kind::green_context, end<"cuGreenCtxDestroy", CUgreenCtx>, false},
    {Kind::context, end<"cuCtxDestroy_v2", CUcontext>, false},
}};

// In the lease it was made in; what was made in none needs none.
CUresult end_one(GatedTenant& tenant, const Holding& holding, const Ending& ending) noexcept {
  if (holding.life == 0) {
    // Of a context that the tenant made: it ends with that, which comes last.
    return holding.context != 0 ? CUDA_SUCCESS : ending.end(holding.handle);
  }
  const auto where = tenant.end_target(holding.life, home_of(holding.kind));
  if (!where) return CUDA_SUCCESS;
  return guarded_end(*where, [&] { return ending.end(holding.handle); });
}

void add_words(std::string& text, std::size_t count, Kind kind) {
  if (count == 0) return;
  text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + to_string(kind);
}

}  // namespace

GivenBack give_back_holdings(GatedTenant& tenant, bool resident) {
  GivenBack given;
  std::array<std::size_t, kind_count> counts{}, kept{}, of_code{};
  // Libraries on the runtime library keep memory of their own from one use to the next.
  const bool all_of_code = resident && tenant.has_private_tables();
  for (const Holding& holding : owners().held_by(tenant.id())) {
    const Ending& ending = endings[static_cast<std::size_t>(holding.kind)];
    if (resident &&
        (ending.of_code || (all_of_code && !tenant.is_of_private_context(holding.life)))) {
      ++of_code[static_cast<std::size_t>(holding.kind)];
      continue;
    }
    if (!owners().remove(holding.kind, holding.handle, tenant.id())) continue;  // by its own thread
    if (holding.bytes != 0) tenant.give_bytes(holding.bytes);
    if (ending.end == nullptr) {
      ++kept[static_cast<std::size_t>(holding.kind)];
      continue;
    }
    const CUresult status = end_one(tenant, holding, ending);
    if (given.status == CUDA_SUCCESS && status != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
        status != CUDA_ERROR_DEINITIALIZED) {
      given.status = status;
    }
    ++counts[static_cast<std::size_t>(holding.kind)];
    ++given.count;
    given.bytes += holding.bytes;
  }
  for (const Ending& ending : endings) {
    add_words(given.what, counts[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.kept, kept[static_cast<std::size_t>(ending.kind)], ending.kind);
    add_words(given.of_code, of_code[static_cast<std::size_t>(ending.kind)], ending.kind);
  }
  return given;
}

}  // namespace ctxbroker::detail
