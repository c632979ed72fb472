#include "context/process_fault.hpp"

#include <string>

#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

void ProcessFault::report_status(CUresult status, const DriverTable& driver, int device,
                                 const TenantIdentity& tenant) noexcept {
  if (!is_process_fault(status)) return;
  CUresult none = CUDA_SUCCESS;
  const bool first = status_.compare_exchange_strong(none, status, std::memory_order_acq_rel);
  if (!first) return;
  try {
    tenant.log(Severity::error, "fault",
               "CUDA has ended in this process: " + status_text(driver, status) +
                   ", seen on device " + std::to_string(device) +
                   "; every lease on every device is gone until the process is started anew");
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

}  // namespace ctxbroker::detail
