// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes a tenant's context current on a thread for the length of a scope.
#pragma once

#include "ctxbroker/export.hpp"

namespace ctxbroker {

class Tenant;

namespace detail {

struct GuardFrame;

// What a guard keeps. Its contents are the broker's own; its size stays the same as long as the
// library's SONAME does.
struct GuardStorage {
  bool entered;       // false: another guard of the same lease was around it already
  GuardFrame* frame;  // if it was entered
  void* reserved[30];
};
static_assert(sizeof(GuardStorage) == 256, "part of the ABI");

}  // namespace detail

/// Makes the lease's context current on the calling thread until the guard ends.
///
/// Guards nest, and end in reverse order on the thread that created them. When a guard ends, the
/// thread's context stack, stream-capture mode and floating-point control are what they were
/// before; what the code inside left behind is removed and counted as a strike. (Floating-point
/// control is the rounding mode, the precision, how subnormal numbers are treated and which
/// exceptions trap. The flags of exceptions are left alone.) A guard inside another guard of the
/// same lease leaves repairs to the outer one. It makes no driver call as long as nothing has
/// changed the thread's context since the outer one began. (Without the gate, it asks the driver
/// each time.)
///
/// If a guard ends on another thread, or before a guard that began inside it, a record with the
/// severity `error` tells the host, and nobody gets a strike. The thread on which it began stays in
/// the lease until its next guard, until it next changes its current context through the gate, or
/// until it ends.
///
/// Any number of threads can use one lease. Up to 1,024 of them are inside at once, and a further
/// one waits until another thread leaves, no longer than BrokerOptions::end_timeout. The error then
/// says how many threads are inside, why no other one gets in, and what plug-ins run.
///
/// All threads in a tenant's lease work in one context, and so share its default stream. NVIDIA
/// documents that a green context may be current on one thread at a time, but the drivers that we
/// tried do not insist on it.
class CTXB_API Guard {
 public:
  /// Enters the lease.
  ///
  /// @param tenant  whose lease to enter. It must outlive the guard.
  /// @param device  CUDA device ordinal. The tenant's first use of a device creates its lease
  ///                there.
  /// @param function  what runs inside, as strikes and the timeline name it: static text. Null
  ///                  means "guard".
  /// @throws Error  `no_device`, `lease_unavailable`, `out_of_memory`, `out_of_host_memory`,
  ///                `system_limit`, `context_lost`, `driver_call`; `wrong_state` if the tenant is
  ///                closed. The thread is unchanged after an exception.
  /// Thread-safe, also beside Tenant::close. It allocates or takes a lock only if the lease is new
  /// or was lost, if more threads are inside at once than ever before, or if the thread has more
  /// guards at once than ever before.
  explicit Guard(Tenant& tenant, int device = 0, const char* function = "guard");
  /// Leaves the lease.
  ~Guard() {
    if (storage_.entered) leave();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  void leave() noexcept;
  detail::GuardStorage storage_;
};

}  // namespace ctxbroker
