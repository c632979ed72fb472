// SPDX-License-Identifier: Apache-2.0
#include "gate/losses.hpp"

#include "driver/driver_error.hpp"
#include "gate/held.hpp"

namespace ctxbroker::detail {

// The call may have named a thing of another context, which was destroyed. So the driver is asked
// about the current one.
void report_failure(CUresult status, const void* from) noexcept {
  if (!loses_context(status)) return;
  thread_state.called_from = from;  // the rule may have led to other calls
  const Caller caller = calling();
  if (caller.tenant == nullptr) return;
  const auto lease = caller.tenant->lease_meant(current_context());
  if (lease == nullptr) return;
  int least = 0, greatest = 0;
  if (!is_process_fault(status) && PriorityRange::call(&least, &greatest) != status) return;
  lease->report_status(status);
}

std::shared_ptr<Lease> lease_about_to_end(CUcontext context) noexcept {
  GatedTenant* const holder = any_gated_tenant() ? holder_of_context(context) : nullptr;
  return holder != nullptr ? holder->lease_meant(context) : nullptr;
}

std::shared_ptr<Lease> lease_about_to_end(CUgreenCtx green) noexcept {
  GatedTenant* const holder = any_gated_tenant() ? holder_of_green(green) : nullptr;
  return holder != nullptr ? holder->lease_with_green(green) : nullptr;
}

void report_ended(const std::shared_ptr<Lease>& lease) noexcept {
  if (lease != nullptr) lease->report_status(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

}  // namespace ctxbroker::detail
