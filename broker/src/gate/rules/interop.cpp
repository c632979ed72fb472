// SPDX-License-Identifier: Apache-2.0
// The driver's linker, textures, surfaces, user objects, and what other APIs and other devices
// share: who made it holds it, and only its holder changes or ends it.
#include <algorithm>
#include <mutex>
#include <optional>

#include "gate/primary_detour.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

// The new handle is the last argument.
template <SymbolName name>
struct BeginsLink {
  using Real = DriverFunction<name, CUresult(unsigned, void*, void*, CUlinkState*)>;
  static CUresult call(unsigned count, void* options, void* values, CUlinkState* out) noexcept {
    const Caller caller = enter_rule<Real>();
    const auto make = [&] { return Real::call(count, options, values, out); };
    return caller.tenant == nullptr ? make() : make_held(*caller.tenant, Kind::link, out, 0, make);
  }
};

// ---- user objects: their holder has a number of references --------------------------------------

constinit std::mutex references_mutex;  // locked while the number of a tenant's references changes

// Changes how many references the tenant has, and returns what it had. Nothing, if it has none.
std::optional<Holding> change_references(GatedTenant& tenant, std::uint64_t object,
                                         std::int64_t by) noexcept {
  const std::lock_guard lock(references_mutex);
  auto held = ledger().remove(Kind::user_object, object, tenant.holder());
  if (!held) {
    GatedTenant* const other = other_holder(tenant, Kind::user_object, object);
    if (other != nullptr) held = ledger().remove(Kind::user_object, object, other->holder());
  }
  if (!held) return std::nullopt;
  const auto now = static_cast<std::int64_t>(held->extent) + by;
  if (now <= 0) return held;
  Holding changed = *held;
  changed.extent = static_cast<std::uint64_t>(now);
  hold_again(changed);
  return held;
}

// The driver has refused to take so many of the references that there were. Other threads may have
// changed their number since.
void put_references_back(const Holding& before, std::uint64_t count) noexcept {
  const std::lock_guard lock(references_mutex);
  const auto held = ledger().remove(Kind::user_object, before.handle, before.holder);
  Holding again = before;
  again.extent = (held ? held->extent : 0) + std::min(before.extent, count);
  hold_again(again);
}

using ReleaseUserObject = DriverFunction<"cuUserObjectRelease", CUresult(CUuserObject, unsigned)>;
using RetainUserObject = DriverFunction<"cuUserObjectRetain", CUresult(CUuserObject, unsigned)>;
template <typename Real, int sign>
CUresult count_references(CUuserObject object, unsigned count) noexcept {
  const Caller caller = enter_rule<Real>();
  const std::uint64_t value = handle_value(object);
  if (object == nullptr) return Real::call(object, count);
  if (caller.tenant == nullptr) {
    const auto refused = refuse_nobody(caller, Real::symbol, Kind::user_object, value);
    return refused ? *refused : Real::call(object, count);
  }
  CUresult status = check_use(*caller.tenant, Real::symbol, Kind::user_object, value);
  if (status != CUDA_SUCCESS) return status;
  if (sign > 0) {
    status = Real::call(object, count);
    if (status == CUDA_SUCCESS) change_references(*caller.tenant, value, count);
    return status;
  }
  // Forgotten first: as soon as it has ended, its value may be another object's.
  const auto before = change_references(*caller.tenant, value, -static_cast<std::int64_t>(count));
  if (!before) return refuse_end(*caller.tenant, Real::symbol, Kind::user_object, value);
  status = Real::call(object, count);
  if (status != CUDA_SUCCESS) put_references_back(*before, count);
  return status;
}

using GraphRetains =
    DriverFunction<"cuGraphRetainUserObject", CUresult(CUgraph, CUuserObject, unsigned, unsigned)>;
CUresult graph_retains(CUgraph graph, CUuserObject object, unsigned count,
                       unsigned flags) noexcept {
  const Caller caller = enter_rule<GraphRetains>();
  if (caller.tenant == nullptr) return GraphRetains::call(graph, object, count, flags);
  GatedTenant& tenant = *caller.tenant;
  CUresult status = check_use(tenant, GraphRetains::symbol, Kind::graph, handle_value(graph));
  if (status == CUDA_SUCCESS) {
    status = check_use(tenant, GraphRetains::symbol, Kind::user_object, handle_value(object));
  }
  if (status != CUDA_SUCCESS) return status;
  status = GraphRetains::call(graph, object, count, flags);
  if (status == CUDA_SUCCESS && (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0) {
    change_references(tenant, handle_value(object), -static_cast<std::int64_t>(count));
  }
  return status;
}

// ---- sparse arrays ------------------------------------------------------------------------------

template <SymbolName name>
struct MapsArrays {
  using Real = DriverFunction<name, CUresult(CUarrayMapInfo*, unsigned, CUstream)>;
  static CUresult call(CUarrayMapInfo* list, unsigned count, CUstream stream) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(list, count, stream);
    CUresult status = check_use(*caller.tenant, Real::symbol, Kind::stream, handle_value(stream));
    for (unsigned i = 0; list != nullptr && i < count && status == CUDA_SUCCESS; ++i) {
      const bool is_array = list[i].resourceType == CU_RESOURCE_TYPE_ARRAY;
      status = check_use(
          *caller.tenant, Real::symbol, is_array ? Kind::array : Kind::mipmapped_array,
          is_array ? handle_value(list[i].resource.array) : handle_value(list[i].resource.mipmap));
      if (status != CUDA_SUCCESS || list[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP) continue;
      status = check_use(*caller.tenant, Real::symbol, Kind::physical, list[i].memHandle.memHandle);
    }
    return status != CUDA_SUCCESS ? status : Real::call(list, count, stream);
  }
};

// ---- semaphores of other APIs -------------------------------------------------------------------

// The host can lend a tenant what it has imported.
constexpr Use semaphore_list{0, Kind::external_semaphore, lent, 2};

using IsCapturing =
    DriverFunction<"cuStreamIsCapturing", CUresult(CUstream, CUstreamCaptureStatus*)>;
bool is_captured(CUstream stream) noexcept {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return !IsCapturing::is_bound() || IsCapturing::call(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Signals semaphores, or waits for them. The driver does not do that in streams of a green context.
template <SymbolName name, bool per_thread = false>
struct OnSemaphores {
  using Real = DriverFunction<name, CUresult(Word, const void*, unsigned, CUstream)>;
  static CUresult call(Word semaphores, const void* parameters, unsigned count,
                       CUstream stream) noexcept {
    constexpr Use uses[] = {semaphore_list, Use{3, Kind::stream}};
    const Caller caller = enter_rule<Real>();
    const Word words[] = {semaphores, 0, count, handle_value(stream)};
    CUresult status = check_uses(caller, Real::symbol, words, uses);
    if (status == CUDA_SUCCESS) status = Real::call(semaphores, parameters, count, stream);
    if (status != CUDA_ERROR_INVALID_HANDLE || caller.tenant == nullptr) return status;
    CUstream const meant = per_thread && stream == nullptr ? CU_STREAM_PER_THREAD : stream;
    const std::shared_ptr<Lease> lease = caller.tenant->lease_meant(current_context());
    if (lease == nullptr || lease->kind() != LeaseKind::green || is_captured(meant)) return status;
    return call_in_primary(*lease, meant, [&](CUstream other) {
      return Real::call(semaphores, parameters, count, other);
    });
  }
};

// ---- callbacks that no tenant can register ------------------------------------------------------

template <SymbolName name, typename... Parameters>
struct RefusesStrangers {
  using Real = DriverFunction<name, CUresult(Parameters...)>;
  static CUresult call(Parameters... parameters) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(parameters...);
    caller.tenant->strike(Real::symbol,
                          "the callback is not the tenant's own; it was left registered");
    return CUDA_ERROR_INVALID_VALUE;
  }
};

// ---- rows ---------------------------------------------------------------------------------------

constexpr Use link_first{0, Kind::link};
// The host can lend a tenant what it has registered.
constexpr Use resource_first{0, Kind::graphics_resource, lent};
constexpr Use resource_list{1, Kind::graphics_resource, lent, 0};
constexpr Use physical_first{0, Kind::physical};

template <SymbolName name>
using OnResources = Uses<name, 3, resource_list, Use{2, Kind::stream}>;
template <SymbolName name, typename... Rest>
using RegistersResource = Counted<name, Kind::graphics_resource, CUgraphicsResource, Rest...>;

constexpr RuleRow interop_rows[] = {
    row<BeginsLink<"cuLinkCreate">>(),
    row<BeginsLink<"cuLinkCreate_v2">>(),
    row<Uses<"cuLinkAddData", 8, link_first>>(),
    row<Uses<"cuLinkAddData_v2", 8, link_first>>(),
    row<Uses<"cuLinkAddFile", 6, link_first>>(),
    row<Uses<"cuLinkAddFile_v2", 6, link_first>>(),
    row<Uses<"cuLinkComplete", 3, link_first>>(),
    row<Ends<"cuLinkDestroy", Kind::link, CUlinkState>>(),

    row<Checked<Counted<"cuTexObjectCreate", Kind::texture, CUtexObject, const void*, const void*,
                        const void*>,
                structure_at(1, Structure::resource)>>(),
    row<Ends<"cuTexObjectDestroy", Kind::texture, CUtexObject>>(),
    row<Checked<Counted<"cuSurfObjectCreate", Kind::surface, CUsurfObject, const void*>,
                structure_at(1, Structure::resource)>>(),
    row<Ends<"cuSurfObjectDestroy", Kind::surface, CUsurfObject>>(),

    rule<ReleaseUserObject, count_references<ReleaseUserObject, -1>>(),
    rule<RetainUserObject, count_references<RetainUserObject, 1>>(),
    rule<GraphRetains, graph_retains>(),

    row<Counted<"cuImportExternalMemory", Kind::external_memory, CUexternalMemory, const void*>>(),
    row<Ends<"cuDestroyExternalMemory", Kind::external_memory, CUexternalMemory>>(),
    row<Counted<"cuImportExternalSemaphore", Kind::external_semaphore, CUexternalSemaphore,
                const void*>>(),
    row<Ends<"cuDestroyExternalSemaphore", Kind::external_semaphore, CUexternalSemaphore>>(),
    row<OnSemaphores<"cuSignalExternalSemaphoresAsync">>(),
    row<OnSemaphores<"cuSignalExternalSemaphoresAsync_ptsz", true>>(),
    row<OnSemaphores<"cuWaitExternalSemaphoresAsync">>(),
    row<OnSemaphores<"cuWaitExternalSemaphoresAsync_ptsz", true>>(),

    row<RegistersResource<"cuGraphicsGLRegisterBuffer", unsigned, unsigned>>(),
    row<RegistersResource<"cuGraphicsGLRegisterImage", unsigned, unsigned, unsigned>>(),
    row<RegistersResource<"cuGraphicsEGLRegisterImage", void*, unsigned>>(),
    row<RegistersResource<"cuGraphicsVDPAURegisterVideoSurface", unsigned, unsigned>>(),
    row<RegistersResource<"cuGraphicsVDPAURegisterOutputSurface", unsigned, unsigned>>(),
    row<Ends<"cuGraphicsUnregisterResource", Kind::graphics_resource, CUgraphicsResource>>(),
    row<Uses<"cuGraphicsResourceSetMapFlags", 2, resource_first>>(),
    row<Uses<"cuGraphicsResourceSetMapFlags_v2", 2, resource_first>>(),
    row<OnResources<"cuGraphicsMapResources">>(),
    row<OnResources<"cuGraphicsMapResources_ptsz">>(),
    row<OnResources<"cuGraphicsUnmapResources">>(),
    row<OnResources<"cuGraphicsUnmapResources_ptsz">>(),

    row<Uses<"cuMulticastAddDevice", 2, physical_first>>(),
    row<Uses<"cuMulticastBindMem", 6, physical_first, Use{2, Kind::physical}>>(),
    row<Uses<"cuMulticastBindMem_v2", 7, physical_first, Use{3, Kind::physical}>>(),
    row<Uses<"cuMulticastBindAddr", 5, physical_first, Use{2, Kind::memory, lent}>>(),
    row<Uses<"cuMulticastBindAddr_v2", 6, physical_first, Use{3, Kind::memory, lent}>>(),
    row<Uses<"cuMulticastUnbind", 4, physical_first>>(),
    row<MapsArrays<"cuMemMapArrayAsync">>(),
    row<MapsArrays<"cuMemMapArrayAsync_ptsz">>(),

    row<RefusesStrangers<"cuLogsUnregisterCallback", void*>>(),
    row<RefusesStrangers<"cuDeviceUnregisterAsyncNotification", CUdevice, void*>>(),
    row<RefusesStrangers<"cuCoredumpDeregisterStartCallback", void*>>(),
    row<RefusesStrangers<"cuCoredumpDeregisterCompleteCallback", void*>>(),
};

}  // namespace

constinit const std::span<const RuleRow> interop_rules = interop_rows;

}  // namespace ctxbroker::detail
