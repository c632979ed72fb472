// SPDX-License-Identifier: Apache-2.0
#include "gate/shown.hpp"

#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

[[gnu::cold, gnu::noinline]] CUcontext find_shown(GatedTenant& tenant, const Frame* frame,
                                                  CUcontext context) noexcept {
  const std::shared_ptr<Lease> lease = tenant.lease_meant(context);
  if (lease == nullptr) return context;
  tenant.note_told(lease->device_ordinal());
  if (frame != nullptr && frame->target.generation == lease->generation()) {
    last_meaning = {&tenant, context, lease->generation()};
  }
  return lease->context();
}

}  // namespace

constinit thread_local Meaning last_meaning;

CUcontext shown_to(const Caller& caller, CUcontext context) noexcept {
  if (caller.tenant == nullptr || context == nullptr) return context;
  const Frame* const frame = frame_of(caller);
  const LeaseUsers* const users = frame != nullptr ? frame->target.users : nullptr;
  if (users != nullptr && (context == frame->target.context || users->has_context(context) ||
                           stands_for_lease_of(*frame, *caller.tenant, context))) {
    caller.tenant->note_told(users->device());
    return users->context();
  }
  return find_shown(*caller.tenant, frame, context);
}

bool is_in_lease(const Caller& caller) noexcept {
  return caller.tenant != nullptr && caller.tenant->lease_meant(current_context()) != nullptr;
}

CUcontext own_context(const Caller& caller, const Lease& lease) noexcept {
  const Frame* const frame = frame_of(caller);
  return frame != nullptr && frame->target.generation == lease.generation() ? frame->target.context
                                                                            : lease.context();
}

}  // namespace ctxbroker::detail
