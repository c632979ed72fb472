// SPDX-License-Identifier: Apache-2.0
// Contexts as tenants know them. Several contexts can stand behind a lease: the green lease of a
// plug-in library has one for each thread that is inside at once, and the memory of every green
// lease is the primary's. A tenant
// knows the lease by one handle, that of its first context, which works in every call.
#pragma once

#include <cstdint>
#include <memory>

#include "gate/caller.hpp"

namespace ctxbroker::detail {

// Returns the frame whose context the caller's guard has made current, or null.
inline Frame* frame_of(const Caller& caller) noexcept {
  return caller.guarded ? pushed_frame() : nullptr;
}

// The last context of the thread that stood for the lease of its guard. The runtime library names
// the same one again and again, in warm jobs too. These must not take a lock that another thread
// holds while it makes a lease.
struct Meaning {
  const GatedTenant* tenant = nullptr;
  CUcontext context = nullptr;
  std::uint64_t generation = 0;
};
extern constinit thread_local Meaning last_meaning;

// Returns whether a context is known to stand for the lease of the frame, in which the tenant is.
inline bool stands_for_lease_of(const Frame& frame, const GatedTenant& tenant,
                                CUcontext context) noexcept {
  return last_meaning.tenant == &tenant && last_meaning.context == context &&
         last_meaning.generation == frame.target.generation;
}

// Returns the handle by which the caller knows a context that a call has returned, or that the
// caller has named. It is the lease's if the context is of a lease of the tenant, or is the primary
// of a device on which the tenant has a lease. The tenant then counts as told. Any other context is
// returned as it is, and so is every one for the host.
CUcontext shown_to(const Caller& caller, CUcontext context) noexcept;

// Returns whether a stream handle names the default stream of a context. Alone, a tenant has the
// primary's there. A green context has another kind, which waits for no other stream.
inline bool is_default_stream(CUstream stream, bool per_thread_form) noexcept {
  return stream == CU_STREAM_LEGACY || (stream == nullptr && !per_thread_form);
}

// Returns whether a lease of the calling tenant is current.
bool is_in_lease(const Caller& caller) noexcept;

// Returns the context of the lease that the calling thread works in: inside a guard of the lease
// its own, else the first one.
CUcontext own_context(const Caller& caller, const Lease& lease) noexcept;

}  // namespace ctxbroker::detail
