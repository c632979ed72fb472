// Peer access. In a context that tenants share, each has it for itself.
#include "gate/peer_access.hpp"

#include "gate/held.hpp"
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

// The leases that a tenant's call is about.
struct Between {
  TranslatedLease from, peer;
  bool known = false;  // false: the contexts are this tenant's alone, or no tenant's
};

// With another device's primary a tenant means its own lease there.
CUresult find(const Caller& caller, const char* function, CUcontext* peer, Between* between) {
  GatedTenant& tenant = *caller.tenant;
  int there = tenant.device_of(*peer);
  if (there < 0 && !ledger().holds(tenant.holder(), Kind::context, handle_value(*peer))) {
    if (ledger().find(Kind::context, handle_value(*peer)) ||
        holder_of_context(*peer, tenant) != nullptr) {
      tenant.strike(function, "wanted access to a neighbour's context; it was refused");
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    there = tenant.unused_device_of(*peer);
  }
  if (there < 0) return CUDA_SUCCESS;
  CUresult status = tenant.lease(there, &between->peer);
  if (status != CUDA_SUCCESS) return status;
  *peer = between->peer.memory_context;
  if (alone_in_context(caller)) return CUDA_SUCCESS;
  const int here = tenant.device_of(current_context());
  if (here < 0) return CUDA_SUCCESS;
  status = tenant.lease(here, &between->from);
  between->known = status == CUDA_SUCCESS;
  return status;
}

using Enable = DriverFunction<"cuCtxEnablePeerAccess", CUresult(CUcontext, unsigned)>;
CUresult enable(CUcontext peer, unsigned flags) noexcept {
  const Caller caller = enter_policy<Enable>();
  if (peer == nullptr || !any_gated_tenant()) return Enable::call(peer, flags);
  if (caller.tenant == nullptr) {
    return enable_peer_access_of_host(current_context(), peer, flags);
  }
  Between between;
  const CUresult status = find(caller, Enable::symbol, &peer, &between);
  if (status != CUDA_SUCCESS) return status;
  return between.known ? enable_peer_access(*caller.tenant, between.from, between.peer, flags)
                       : Enable::call(peer, flags);
}

using Disable = DriverFunction<"cuCtxDisablePeerAccess", CUresult(CUcontext)>;
CUresult disable(CUcontext peer) noexcept {
  const Caller caller = enter_policy<Disable>();
  if (peer == nullptr || !any_gated_tenant()) return Disable::call(peer);
  if (caller.tenant == nullptr) return disable_peer_access_of_host(current_context(), peer);
  Between between;
  const CUresult status = find(caller, Disable::symbol, &peer, &between);
  if (status != CUDA_SUCCESS) return status;
  return between.known ? disable_peer_access(*caller.tenant, between.from, between.peer)
                       : Disable::call(peer);
}

constexpr PolicyRow rows[] = {policy<Enable, enable>(), policy<Disable, disable>()};

}  // namespace

std::span<const PolicyRow> peer_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
