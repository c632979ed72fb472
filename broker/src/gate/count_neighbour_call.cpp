// SPDX-License-Identifier: Apache-2.0
// Implements NeighbourCall. All rules include its header, so the includes of this file stay apart.
#include "context/realtime_session.hpp"
#include "context/thread_state.hpp"
#include "gate/held.hpp"
#include "gate/neighbour_call.hpp"
#include "gate/stored_memory.hpp"

namespace ctxbroker::detail {
namespace {

// Returns the kind of lease in whose memory and context a call works. A context that the tenant has
// made itself counts as a private lease.
LeaseKind kind_of_place(GatedTenant& tenant, CUcontext context) noexcept {
  if (context == nullptr) return LeaseKind::private_own;  // the driver refuses the call
  const auto lease = tenant.lease_meant(context);
  if (lease != nullptr) return lease->kind();
  return ledger().holds(tenant.holder(), Kind::context, handle_value(context))
             ? LeaseKind::private_own
             : LeaseKind::green;
}

constexpr std::size_t allocates = realtime_call("cuMemAlloc");
constexpr std::size_t allocates_rows = realtime_call("cuMemAllocPitch");
constexpr std::size_t frees = realtime_call("cuMemFree");
constexpr std::size_t allocates_pinned = realtime_call("cuMemHostAlloc");
constexpr std::size_t allocates_plainly = realtime_call("cuMemAllocHost");
constexpr std::size_t frees_pinned = realtime_call("cuMemFreeHost");

// Returns whether the call is for memory of a tenant's store, which holds up no neighbour.
bool is_of_store(GatedTenant& tenant, std::size_t call, CUdeviceptr memory,
                 unsigned flags) noexcept {
  switch (call) {
    case allocates:
    case allocates_rows:
      return store_here(tenant) != nullptr;
    case allocates_pinned:
    case allocates_plainly:
      return can_be_stored(flags) && store_here(tenant, Kind::host_memory) != nullptr;
    case frees:
      return find_stored(memory, Kind::memory).has_value();
    case frees_pinned:
      return find_stored(memory, Kind::host_memory).has_value();
    default:
      return false;
  }
}

}  // namespace

NeighbourCall::NeighbourCall(std::size_t call, CUcontext named, CUdeviceptr memory,
                             unsigned flags) noexcept {
  const void* const from = thread_state.called_from;
  const Caller caller = calling();
  if (caller.tenant != nullptr && !is_of_store(*caller.tenant, call, memory, flags)) {
    CUcontext const context = named != nullptr ? named : current_context();
    const LeaseKind kind = kind_of_place(*caller.tenant, context);
    const TenantIdentity& tenant = caller.tenant->identity();
    is_refused_ = holds_up(call, kind) && realtime_calls[call].answer == RealtimeAnswer::refuse &&
                  tenant.realtime.refuses() && !thread_state.is_in_hosts_call;
    if (is_refused_) {
      tenant.realtime.count_refused(call);
      tell_realtime_calls(tenant, false);
    } else {
      work_.emplace(tenant, call, kind);
    }
  }
  thread_state.called_from = from;  // for the rule
}

}  // namespace ctxbroker::detail
