// SPDX-License-Identifier: Apache-2.0
// Contexts of leases that are lost outside of the broker's own calls.
#pragma once

#include <memory>

#include "context/lease.hpp"
#include "gate/rule.hpp"

namespace ctxbroker::detail {

// Takes a context alone. It waits for nothing in the driver, also while another thread's call does,
// and fails in a context that is gone and after a fault. The other questions that drivers answer
// for the current context either wait (cuCtxGetLimit), or succeed all the same (cuCtxGetDevice).
using PriorityRange = DriverFunction<"cuCtxGetStreamPriorityRange", CUresult(int*, int*)>;

// The lease that a context belongs to which a call is about to end; null: it is of none. A shared
// lease has no context of its own.
std::shared_ptr<Lease> lease_about_to_end(CUcontext context) noexcept;
std::shared_ptr<Lease> lease_about_to_end(CUgreenCtx green) noexcept;

// The call has ended the context, so that the handle must not reach the driver any more.
void report_ended(const std::shared_ptr<Lease>& lease) noexcept;

}  // namespace ctxbroker::detail
