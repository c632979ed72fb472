// Access of kernels in one context to the memory of another device's. The driver knows it once per
// pair of contexts; here it is known how many tenants of a shared context have asked for it.
#pragma once

#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

// For the tenant, from the lease's memory to the peer's; a context of `from` is current. As the
// driver: ALREADY_ENABLED only for a tenant that has it, NOT_ENABLED for one that has it not.
CUresult enable_peer_access(GatedTenant& tenant, const CapturedLease& from,
                            const CapturedLease& peer, unsigned flags) noexcept;
CUresult disable_peer_access(GatedTenant& tenant, const CapturedLease& from,
                             const CapturedLease& peer) noexcept;

// The host's own calls: it takes nothing from tenants.
CUresult enable_peer_access_of_host(CUcontext from, CUcontext peer, unsigned flags) noexcept;
CUresult disable_peer_access_of_host(CUcontext from, CUcontext peer) noexcept;

// A holding of Kind::peer_access has ended; the context it was made in is current.
CUresult end_peer_access(std::uint64_t handle) noexcept;

}  // namespace ctxbroker::detail
