// SPDX-License-Identifier: Apache-2.0
// Memory pools. A device's default pool and its current pool are everybody's. In their place each
// tenant has a pool of its own, which is made when the tenant first asks and ends with it.
#include <vector>

#include "gate/held.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using Create = DriverFunction<"cuMemPoolCreate", CUresult(CUmemoryPool*, const CUmemPoolProps*)>;

bool holds(const GatedTenant& tenant, CUmemoryPool pool) noexcept {
  const std::uint64_t value = handle_value(pool);
  return ledger().holds(tenant.holder(), Kind::pool, value) ||
         ledger().holds(tenant.holder(), Kind::own_pool, value);
}

// Another tenant's pool, which the ledger knows.
bool is_anothers(const GatedTenant& tenant, CUmemoryPool pool, Kind* kind) noexcept {
  for (const Kind one : {Kind::pool, Kind::own_pool}) {
    const auto held = ledger().find(one, handle_value(pool));
    if (!held || held->holder.tenant == tenant.id()) continue;
    GatedTenant* const other = gated_tenant_of(held->holder.tenant);
    if (other != nullptr && other->stands_with(tenant)) continue;
    *kind = one;
    return true;
  }
  return false;
}

CUresult refuse_pool(GatedTenant& tenant, const char* function, CUmemoryPool pool) noexcept {
  Kind kind{};
  if (is_anothers(tenant, pool, &kind)) {
    static_cast<void>(refuse_end(tenant, function, kind, handle_value(pool)));
    return CUDA_ERROR_NOT_PERMITTED;
  }
  tenant.log_once(function, "refused: the pool is not the tenant's own; cuMemPoolCreate makes one");
  return CUDA_ERROR_NOT_PERMITTED;
}

std::optional<CUresult> refuse_change_by_nobody(const Caller& caller, const char* function,
                                                CUmemoryPool pool) noexcept {
  const auto refused = refuse_nobody(caller, function, Kind::pool, handle_value(pool));
  return refused ? refused : refuse_nobody(caller, function, Kind::own_pool, handle_value(pool));
}

// A pool can be made while a stream of this thread is capturing. The capture must not see that.
class OutsideCaptures {
 public:
  OutsideCaptures() noexcept { ExchangeMode::call(&mode_); }
  ~OutsideCaptures() { ExchangeMode::call(&mode_); }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

 private:
  using ExchangeMode =
      DriverFunction<"cuThreadExchangeStreamCaptureMode", CUresult(CUstreamCaptureMode*)>;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUresult make_standard(GatedTenant& tenant, CUdevice device, OwnPools& pools) noexcept {
  if (pools.standard != nullptr) return CUDA_SUCCESS;
  if (!tenant.is_open()) return CUDA_ERROR_INVALID_CONTEXT;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  const Holding holding{.kind = Kind::own_pool, .extent = static_cast<std::uint64_t>(device)};
  return make_held(tenant, holding, &pools.standard, [&] {
    const OutsideCaptures outside;
    return Create::call(&pools.standard, &properties);
  });
}

// The tenant's own pool, in place of the device's default pool or of its current one.
CUresult own_pool(GatedTenant& tenant, CUdevice device, bool current, CUmemoryPool* pool) noexcept {
  CUmemoryPool own = nullptr;
  const CUresult status = tenant.with_pools(device, [&](OwnPools& pools) {
    if (current && pools.current != nullptr) {
      own = pools.current;
      return CUDA_SUCCESS;
    }
    const CUresult made = make_standard(tenant, device, pools);
    own = pools.standard;
    return made;
  });
  *pool = own;  // not under the lock: it may be a bad address of the caller
  return status;
}

// The pool for an allocation that names none. Null: the driver chooses, because the stream, the
// device or its lack of pools makes the call fail anyway.
using StreamDevice = DriverFunction<"cuStreamGetDevice", CUresult(CUstream, CUdevice*)>;
CUresult pool_of_stream(GatedTenant& tenant, CUstream stream, CUmemoryPool* pool) noexcept {
  *pool = nullptr;
  const bool is_default =
      stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUdevice device = -1;
  if (is_default || !StreamDevice::is_bound() ||
      StreamDevice::call(stream, &device) != CUDA_SUCCESS) {
    if (CurrentDevice::call(&device) != CUDA_SUCCESS) return CUDA_SUCCESS;
  }
  const CUresult status = own_pool(tenant, device, true, pool);
  return status == CUDA_ERROR_OUT_OF_MEMORY ? status : CUDA_SUCCESS;
}

template <SymbolName name>
using CaptureInfo = DriverFunction<name, CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                                  CUgraph*, const CUgraphNode**, std::size_t*)>;

// In a capture this is memory of the graph that is being made: no pool gives it, and it counts as
// the graph's. Calls `allocate(captured)`.
template <SymbolName info, typename Allocate>
CUresult allocate_async(GatedTenant& tenant, CUdeviceptr* out, std::size_t bytes, CUstream stream,
                        bool pinned, Allocate&& allocate) noexcept {
  using Info = CaptureInfo<info>;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const bool captured =
      Info::is_bound() &&
      Info::call(stream, &capture, nullptr, &graph, nullptr, nullptr) == CUDA_SUCCESS &&
      capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (!captured) {
    Holding memory{.kind = Kind::memory, .pooled = true};
    (pinned ? memory.host_bytes : memory.bytes) = bytes;
    return make_held(tenant, memory, out, [&] { return allocate(false); });
  }
  return make_graph_memory(tenant, graph, bytes, out, [&] { return allocate(true); });
}

// In a neighbour's stream it would be work that the neighbour did not ask for, and in its capture a
// part of its graph. The host may have lent its own stream.
CUresult check_order(GatedTenant& tenant, const char* function, CUstream stream) noexcept {
  return check_use(tenant, function, Kind::stream, handle_value(stream), lent);
}

template <SymbolName name, SymbolName from_pool, SymbolName info>
struct AllocatesAsync {
  using Real = DriverFunction<name, CUresult(CUdeviceptr*, std::size_t, CUstream)>;
  using FromPool =
      DriverFunction<from_pool, CUresult(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream)>;
  static CUresult call(CUdeviceptr* out, std::size_t bytes, CUstream stream) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, bytes, stream);
    const CUresult refused = check_order(*caller.tenant, Real::symbol, stream);
    if (refused != CUDA_SUCCESS) return refused;
    return allocate_async<info>(*caller.tenant, out, bytes, stream, false, [&](bool captured) {
      CUmemoryPool pool = nullptr;
      if (captured) return Real::call(out, bytes, stream);
      const CUresult status = pool_of_stream(*caller.tenant, stream, &pool);
      if (status != CUDA_SUCCESS) return status;
      return pool != nullptr ? FromPool::call(out, bytes, pool, stream)
                             : Real::call(out, bytes, stream);
    });
  }
};

template <SymbolName name, SymbolName info>
struct AllocatesFromPool {
  using Real = DriverFunction<name, CUresult(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream)>;
  static CUresult call(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool,
                       CUstream stream) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, bytes, pool, stream);
    Kind kind{};
    // The host's pool may be lent. Another tenant's has room that counts in no budget of this one.
    if (is_anothers(*caller.tenant, pool, &kind)) {
      return refuse_end(*caller.tenant, Real::symbol, kind, handle_value(pool));
    }
    const CUresult refused = check_order(*caller.tenant, Real::symbol, stream);
    if (refused != CUDA_SUCCESS) return refused;
    const auto held = ledger().find(Kind::pool, handle_value(pool));
    const bool pinned = held && held->pooled;
    return allocate_async<info>(*caller.tenant, out, bytes, stream, pinned,
                                [&](bool) { return Real::call(out, bytes, pool, stream); });
  }
};

CUresult create(CUmemoryPool* out, const CUmemPoolProps* properties) noexcept {
  const Caller caller = enter_rule<Create>();
  if (caller.tenant == nullptr || properties == nullptr) return Create::call(out, properties);
  const bool of_host = is_of_host(properties->location);
  const auto device = static_cast<std::uint64_t>(properties->location.id);
  return make_held(*caller.tenant, Holding{.kind = Kind::pool, .pooled = of_host, .extent = device},
                   out, [&] { return Create::call(out, properties); });
}

// The pool that stands for the default one lives as long as the tenant.
using Destroy = DriverFunction<"cuMemPoolDestroy", CUresult(CUmemoryPool)>;
CUresult destroy(CUmemoryPool pool) noexcept {
  const Caller caller = enter_rule<Destroy>();
  const std::uint64_t value = handle_value(pool);
  if (pool == nullptr) return Destroy::call(pool);
  if (caller.tenant == nullptr) {
    const auto refused = refuse_change_by_nobody(caller, Destroy::symbol, pool);
    if (refused) return *refused;
    return end_by_host(caller, Destroy::symbol, Kind::pool, value,
                       [&] { return Destroy::call(pool); });
  }
  GatedTenant& tenant = *caller.tenant;
  if (ledger().holds(tenant.holder(), Kind::own_pool, value)) return CUDA_ERROR_INVALID_VALUE;
  const auto held = ledger().remove(Kind::pool, value, tenant.holder());
  if (!held) return refuse_end(tenant, Destroy::symbol, Kind::pool, value);
  return tenant.with_pools(static_cast<int>(held->extent), [&](OwnPools& pools) {
    const CUresult status = Destroy::call(pool);
    if (status != CUDA_SUCCESS) hold_again(*held);
    if (status == CUDA_SUCCESS && pools.current == pool) pools.current = nullptr;
    return status;
  });
}

template <SymbolName name, bool current>
struct GetsPoolOfDevice {
  using Real = DriverFunction<name, CUresult(CUmemoryPool*, CUdevice)>;
  static CUresult call(CUmemoryPool* pool, CUdevice device) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(pool, device);
    if (caller.tenant == nullptr || status != CUDA_SUCCESS) return status;
    return own_pool(*caller.tenant, device, current, pool);
  }
};

CUresult set_current(GatedTenant& tenant, const char* function, CUdevice device,
                     CUmemoryPool pool) noexcept {
  if (!tenant.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!holds(tenant, pool)) return refuse_pool(tenant, function, pool);
  return tenant.with_pools(device, [&](OwnPools& pools) {
    const auto held = ledger().find(Kind::pool, handle_value(pool));
    if (pool != pools.standard && (!held || held->extent != static_cast<std::uint64_t>(device))) {
      return CUDA_ERROR_INVALID_VALUE;  // another device's
    }
    pools.current = pool;
    return CUDA_SUCCESS;
  });
}

using SetOfDevice = DriverFunction<"cuDeviceSetMemPool", CUresult(CUdevice, CUmemoryPool)>;
CUresult set_of_device(CUdevice device, CUmemoryPool pool) noexcept {
  const Caller caller = enter_rule<SetOfDevice>();
  if (caller.tenant == nullptr) return SetOfDevice::call(device, pool);
  return set_current(*caller.tenant, SetOfDevice::symbol, device, pool);
}

// The calls of CUDA 13 name a location and a kind of memory. There are pools of the host too.
bool is_of_device(const CUmemLocation* location, CUmemAllocationType type) noexcept {
  return location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

template <SymbolName name, bool current>
struct GetsPoolOfPlace {
  using Real = DriverFunction<name, CUresult(CUmemoryPool*, CUmemLocation*, CUmemAllocationType)>;
  static CUresult call(CUmemoryPool* pool, CUmemLocation* location,
                       CUmemAllocationType type) noexcept {
    const Caller caller = enter_rule<Real>();
    const CUresult status = Real::call(pool, location, type);
    if (caller.tenant == nullptr || status != CUDA_SUCCESS || !is_of_device(location, type)) {
      return status;
    }
    return own_pool(*caller.tenant, location->id, current, pool);
  }
};

using SetOfPlace =
    DriverFunction<"cuMemSetMemPool", CUresult(CUmemLocation*, CUmemAllocationType, CUmemoryPool)>;
CUresult set_of_place(CUmemLocation* location, CUmemAllocationType type,
                      CUmemoryPool pool) noexcept {
  const Caller caller = enter_rule<SetOfPlace>();
  if (caller.tenant == nullptr) return SetOfPlace::call(location, type, pool);
  if (!is_of_device(location, type)) return refuse_pool(*caller.tenant, SetOfPlace::symbol, pool);
  return set_current(*caller.tenant, SetOfPlace::symbol, location->id, pool);
}

// Changes a pool. A tenant may do that to its own pools only.
template <SymbolName name, typename... Rest>
struct ChangesPool {
  using Real = DriverFunction<name, CUresult(CUmemoryPool, Rest...)>;
  [[gnu::always_inline]] static CUresult call(CUmemoryPool pool, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) {
      const auto refused = refuse_change_by_nobody(caller, Real::symbol, pool);
      return refused ? *refused : Real::call(pool, rest...);
    }
    if (pool == nullptr || holds(*caller.tenant, pool)) return Real::call(pool, rest...);
    return refuse_pool(*caller.tenant, Real::symbol, pool);
  }
};

using Trim = ChangesPool<"cuMemPoolTrimTo", std::size_t>;

// A pool keeps what is freed up to its threshold, which is 0 at first.
using SetAttribute = ChangesPool<"cuMemPoolSetAttribute", CUmemPool_attribute, void*>;
CUresult set_attribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) noexcept {
  const CUresult status = SetAttribute::call(pool, which, value);
  if (status == CUDA_SUCCESS && which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    if (const Caller caller = calling(); caller.tenant != nullptr) {
      caller.tenant->mark_kept_unused();
    }
  }
  return status;
}

using GetAttribute =
    DriverFunction<"cuMemPoolGetAttribute", CUresult(CUmemoryPool, CUmemPool_attribute, void*)>;
std::uint64_t unused_of(CUmemoryPool pool) noexcept {
  cuuint64_t reserved = 0, used = 0;
  if (GetAttribute::call(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS ||
      GetAttribute::call(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS) {
    return 0;
  }
  return reserved > used ? reserved - used : 0;
}

// Lets another process, or another tenant, have the pool's memory.
template <SymbolName name, typename... Rest>
struct ExportsPool {
  using Real = DriverFunction<name, CUresult(void*, CUmemoryPool, Rest...)>;
  static CUresult call(void* out, CUmemoryPool pool, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    Kind kind{};
    if (caller.tenant != nullptr && is_anothers(*caller.tenant, pool, &kind)) {
      return refuse_end(*caller.tenant, Real::symbol, kind, handle_value(pool));
    }
    return Real::call(out, pool, rest...);
  }
};

// All graphs of a device share one memory.
using GraphMemTrim = DriverFunction<"cuDeviceGraphMemTrim", CUresult(CUdevice)>;
CUresult trim_graph_memory(CUdevice device) noexcept {
  const Caller caller = enter_rule<GraphMemTrim>();
  if (caller.tenant == nullptr) return call_of_host_on<GraphMemTrim>(caller, device, device);
  if (!caller.tenant->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  caller.tenant->log_once(GraphMemTrim::symbol,
                          "ignored: it would free what the neighbours' graphs keep for their next "
                          "launch too");
  return CUDA_SUCCESS;
}

constexpr RuleRow pool_rows[] = {
    row<AllocatesAsync<"cuMemAllocAsync", "cuMemAllocFromPoolAsync",
                       "cuStreamGetCaptureInfo_v2">>(),
    row<AllocatesAsync<"cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync_ptsz",
                       "cuStreamGetCaptureInfo_v2_ptsz">>(),
    row<AllocatesFromPool<"cuMemAllocFromPoolAsync", "cuStreamGetCaptureInfo_v2">>(),
    row<AllocatesFromPool<"cuMemAllocFromPoolAsync_ptsz", "cuStreamGetCaptureInfo_v2_ptsz">>(),

    rule<Create, create>(),
    row<Counted<"cuMemPoolImportFromShareableHandle", Kind::pool, CUmemoryPool, void*,
                CUmemAllocationHandleType, unsigned long long>>(),
    row<ExportsPool<"cuMemPoolExportToShareableHandle", CUmemAllocationHandleType,
                    unsigned long long>>(),
    row<Checked<Counted<"cuMemPoolImportPointer", Kind::memory, CUdeviceptr, CUmemoryPool, void*>,
                Use{1, Kind::pool, lent}>>(),
    rule<Destroy, destroy>(),
    row<GetsPoolOfDevice<"cuDeviceGetDefaultMemPool", false>>(),
    row<GetsPoolOfDevice<"cuDeviceGetMemPool", true>>(),
    rule<SetOfDevice, set_of_device>(),
    row<GetsPoolOfPlace<"cuMemGetDefaultMemPool", false>>(),
    row<GetsPoolOfPlace<"cuMemGetMemPool", true>>(),
    rule<SetOfPlace, set_of_place>(),
    row<Trim>(),
    rule<SetAttribute::Real, set_attribute>(),
    unguarded<GetAttribute>(),
    row<ChangesPool<"cuMemPoolSetAccess", const void*, std::size_t>>(),
    rule<GraphMemTrim, trim_graph_memory>(),
    row<Refuses<"cuDeviceSetGraphMemAttribute", CUDA_ERROR_NOT_PERMITTED, CUdevice,
                CUgraphMem_attribute, void*>>(),
    unguarded<StreamDevice>(),
    unguarded<CaptureInfo<"cuStreamGetCaptureInfo_v2">>(),
    unguarded<CaptureInfo<"cuStreamGetCaptureInfo_v2_ptsz">>(),
};

}  // namespace

void give_up_unused(GatedTenant& tenant) noexcept {
  if (!GetAttribute::is_bound()) return;
  try {
    std::vector<CUmemoryPool> pools;
    for (const Holding& one : ledger().held_by(tenant.holder())) {
      if (one.kind != Kind::pool && one.kind != Kind::own_pool) continue;
      pools.push_back(reinterpret_cast<CUmemoryPool>(one.handle));
    }
    const OutsideCaptures outside;
    tenant.while_pools_stay([&] {
      std::erase_if(pools, [&](CUmemoryPool pool) { return !holds(tenant, pool); });
      std::uint64_t all = tenant.budget().held();
      for (CUmemoryPool const pool : pools) all += unused_of(pool);
      if (all <= tenant.budget().limit()) return;
      for (CUmemoryPool const pool : pools) Trim::Real::call(pool, 0);
    });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): at the next allocation
  }
}

constinit const std::span<const RuleRow> pool_rules = pool_rows;

}  // namespace ctxbroker::detail
