// SPDX-License-Identifier: Apache-2.0
// Peer access: kernels in one context reach memory of another device. The driver knows it once per
// pair of contexts. In a context that tenants share, each has it for itself: this counts which of
// them have asked for it, so that no tenant takes it from another.
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "gate/held.hpp"
#include "gate/rule.hpp"

namespace ctxbroker::detail {
namespace {

using Enable = DriverFunction<"cuCtxEnablePeerAccess", CUresult(CUcontext, unsigned)>;
using Disable = DriverFunction<"cuCtxDisablePeerAccess", CUresult(CUcontext)>;

// Two contexts between which tenants have enabled peer access. A pair without holders is forgotten.
struct Pair {
  CUcontext from, to;
  std::uint64_t from_generation, to_generation;
  bool host_has_it;                    // then the end of the last tenant leaves it enabled
  std::vector<std::uint64_t> holders;  // handles of Kind::peer_access, one per tenant
};

// One for the process, as contexts are. The driver is called under the lock, which is rare.
struct Pairs {
  std::mutex mutex;
  std::vector<Pair> all;
  std::uint64_t last_handle = 0;

  static Pairs& one() {
    static auto* const pairs = new Pairs;  // tenants' threads may ask until the process ends
    return *pairs;
  }
  Pair* find(CUcontext from, CUcontext to) noexcept {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Pair& pair) {
      return pair.from == from && pair.to == to;
    });
    return found != all.end() ? &*found : nullptr;
  }
  void forget(const Pair& pair) noexcept { all.erase(all.begin() + (&pair - all.data())); }
  void forget(Pair& pair, std::uint64_t holder) noexcept {
    std::erase(pair.holders, holder);
    if (pair.holders.empty()) forget(pair);
  }

  // A pair of earlier contexts with the same handles is forgotten.
  Pair* find(const TranslatedLease& from, const TranslatedLease& to) noexcept {
    Pair* const pair = find(from.memory_context, to.memory_context);
    if (pair == nullptr) return nullptr;
    if (pair->from_generation == from.memory_generation &&
        pair->to_generation == to.memory_generation)
      return pair;
    for (const std::uint64_t handle : pair->holders) ledger().remove(Kind::peer_access, handle);
    forget(*pair);
    return nullptr;
  }
};

std::vector<std::uint64_t>::iterator holder_of(Pair& pair, const GatedTenant& tenant) noexcept {
  return std::find_if(pair.holders.begin(), pair.holders.end(), [&](std::uint64_t handle) {
    return ledger().holds(tenant.holder(), Kind::peer_access, handle);
  });
}

// Ends the access of one holder. With the last holder's, it is disabled. False in `has_ended`: the
// driver has refused, and nothing has changed.
CUresult end(Pairs& pairs, Pair& pair, std::uint64_t holder, bool* has_ended) noexcept {
  const bool is_last = pair.holders.size() == 1;
  const CUresult status = is_last && !pair.host_has_it ? Disable::call(pair.to) : CUDA_SUCCESS;
  *has_ended = is_ended(status) || status == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  if (*has_ended) pairs.forget(pair, holder);
  return status;
}

// For a tenant, whose lease `from` is current; NOT_ENABLED where it does not have the access.
CUresult disable_peer_access(GatedTenant& tenant, const TranslatedLease& from,
                             const TranslatedLease& peer) noexcept {
  Pairs& pairs = Pairs::one();
  const std::lock_guard lock(pairs.mutex);
  Pair* const pair = pairs.find(from, peer);
  if (pair == nullptr) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  const auto holder = holder_of(*pair, tenant);
  if (holder == pair->holders.end()) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  const std::uint64_t handle = *holder;
  bool has_ended = false;
  const CUresult status = end(pairs, *pair, handle, &has_ended);
  if (has_ended) ledger().remove(Kind::peer_access, handle);
  return status;
}

// The host's own calls. They take nothing from tenants.
CUresult enable_peer_access_of_host(CUcontext from, CUcontext peer, unsigned flags) noexcept {
  Pairs& pairs = Pairs::one();
  const std::lock_guard lock(pairs.mutex);
  Pair* const pair = pairs.find(from, peer);
  if (pair == nullptr || pair->host_has_it || flags != 0) return Enable::call(peer, flags);
  pair->host_has_it = true;
  return CUDA_SUCCESS;
}

CUresult disable_peer_access_of_host(CUcontext from, CUcontext peer) noexcept {
  Pairs& pairs = Pairs::one();
  const std::lock_guard lock(pairs.mutex);
  Pair* const pair = pairs.find(from, peer);
  if (pair == nullptr) return Disable::call(peer);
  if (!pair->host_has_it) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  pair->host_has_it = false;  // it stays the tenants'
  return CUDA_SUCCESS;
}

// The leases that a tenant's call is about.
struct Between {
  TranslatedLease from, peer;
  bool known = false;  // false: the contexts are this tenant's alone, or no tenant's
};

// With another device's primary a tenant means its own lease there.
CUresult find(const Caller& caller, const char* function, CUcontext* peer, Between* between) {
  GatedTenant& tenant = *caller.tenant;
  int there = tenant.find_device(*peer);
  if (there < 0 && !ledger().holds(tenant.holder(), Kind::context, handle_value(*peer))) {
    if (ledger().find(Kind::context, handle_value(*peer)) ||
        holder_of_context(*peer, &tenant) != nullptr) {
      tenant.strike(function, "wanted access to a neighbour's context; it was refused");
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    there = tenant.find_unused_device(*peer);
  }
  if (there < 0) return CUDA_SUCCESS;
  CUresult status = tenant.lease(there, &between->peer);
  if (status != CUDA_SUCCESS) return status;
  *peer = between->peer.memory_context;
  if (alone_in_context(caller)) return CUDA_SUCCESS;
  const int here = tenant.find_device(current_context());
  if (here < 0) return CUDA_SUCCESS;
  status = tenant.lease(here, &between->from);
  between->known = status == CUDA_SUCCESS;
  return status;
}

// Opens the stores at `peer` after a call that enables access. The context that gets the access is
// current.
CUresult open_stores(GatedTenant& tenant, CUcontext peer, CUresult enabled) noexcept {
  CUdevice here = -1;
  const std::shared_ptr<Lease> there = tenant.lease_meant(peer);
  const bool is_known = there != nullptr && CurrentDevice::call(&here) == CUDA_SUCCESS;
  return is_known ? there->open_stores(here, enabled) : enabled;
}

CUresult enable(CUcontext peer, unsigned flags) noexcept {
  const Caller caller = enter_rule<Enable>();
  if (peer == nullptr || !any_gated_tenant()) return Enable::call(peer, flags);
  if (caller.tenant == nullptr) {
    return enable_peer_access_of_host(current_context(), peer, flags);
  }
  Between between;
  const CUresult status = find(caller, Enable::symbol, &peer, &between);
  if (status != CUDA_SUCCESS) return status;
  return open_stores(*caller.tenant, peer,
                     between.known
                         ? enable_peer_access(*caller.tenant, between.from, between.peer, flags)
                         : Enable::call(peer, flags));
}

CUresult disable(CUcontext peer) noexcept {
  const Caller caller = enter_rule<Disable>();
  if (peer == nullptr || !any_gated_tenant()) return Disable::call(peer);
  if (caller.tenant == nullptr) return disable_peer_access_of_host(current_context(), peer);
  Between between;
  const CUresult status = find(caller, Disable::symbol, &peer, &between);
  if (status != CUDA_SUCCESS) return status;
  return between.known ? disable_peer_access(*caller.tenant, between.from, between.peer)
                       : Disable::call(peer);
}

constexpr RuleRow peer_rows[] = {rule<Enable, enable>(), rule<Disable, disable>()};

}  // namespace

CUresult enable_peer_access(GatedTenant& tenant, const TranslatedLease& from,
                            const TranslatedLease& peer, unsigned flags) noexcept {
  try {
    Holding holding = made_here(tenant, {.kind = Kind::peer_access});
    Pairs& pairs = Pairs::one();
    const std::lock_guard lock(pairs.mutex);
    Pair* pair = pairs.find(from, peer);
    if (pair == nullptr) {
      pairs.all.reserve(pairs.all.size() + 1);
      const CUresult status = Enable::call(peer.memory_context, flags);
      const bool was_there = status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
      if (status != CUDA_SUCCESS && !was_there) return status;
      pair = &pairs.all.emplace_back(Pair{from.memory_context,
                                          peer.memory_context,
                                          from.memory_generation,
                                          peer.memory_generation,
                                          was_there,
                                          {}});
    } else if (flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    } else if (holder_of(*pair, tenant) != pair->holders.end()) {
      return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    holding.handle = ++pairs.last_handle;
    pair->holders.push_back(holding.handle);
    ledger().add(std::move(holding));  // what cannot be entered stays enabled
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

CUresult end_peer_access(std::uint64_t handle) noexcept {
  Pairs& pairs = Pairs::one();
  const std::lock_guard lock(pairs.mutex);
  for (Pair& pair : pairs.all) {
    if (std::find(pair.holders.begin(), pair.holders.end(), handle) == pair.holders.end()) continue;
    bool has_ended = false;
    const CUresult status = end(pairs, pair, handle, &has_ended);
    if (!has_ended) pairs.forget(pair, handle);  // its holder has left
    return status;
  }
  return CUDA_SUCCESS;
}

constinit const std::span<const RuleRow> peer_rules = peer_rows;

}  // namespace ctxbroker::detail
