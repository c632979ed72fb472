// Access of kernels in one context to memory of another device. The driver knows it once per pair
// of contexts. This counts which tenants of a shared context have asked for it, so that no tenant
// takes it from another.
#pragma once

#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

// For a tenant, whose lease `from` is current. They answer as the driver: ALREADY_ENABLED to a
// tenant that has the access, NOT_ENABLED to one that does not.
CUresult enable_peer_access(GatedTenant& tenant, const TranslatedLease& from,
                            const TranslatedLease& peer, unsigned flags) noexcept;
CUresult disable_peer_access(GatedTenant& tenant, const TranslatedLease& from,
                             const TranslatedLease& peer) noexcept;

// The host's own calls. They take nothing from tenants.
CUresult enable_peer_access_of_host(CUcontext from, CUcontext peer, unsigned flags) noexcept;
CUresult disable_peer_access_of_host(CUcontext from, CUcontext peer) noexcept;

// A holding of Kind::peer_access has ended; the context it was made in is current.
CUresult end_peer_access(std::uint64_t handle) noexcept;

}  // namespace ctxbroker::detail
