// SPDX-License-Identifier: Apache-2.0
#include "context/device_access.hpp"

#include <string>

#include "context/ownership.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

void ProcessFault::report_status(CUresult status, const DriverTable& driver, int device,
                                 const TenantIdentity& tenant) noexcept {
  if (!is_process_fault(status)) return;
  CUresult none = CUDA_SUCCESS;
  const bool first = status_.compare_exchange_strong(none, status, std::memory_order_acq_rel);
  if (!first) return;
  ownership_changed();
  tenant.log(Severity::error, "fault", [&] {
    return "CUDA has ended in this process: " + status_text(driver, status) + ", seen on device " +
           std::to_string(device) +
           "; every lease on every device is gone until the process is started again";
  });
}

CUresult DeviceAccess::report_status(CUresult status) const noexcept {
  fault.report_status(status, table(), ordinal, host);
  return status;
}

void DeviceAccess::log(Severity severity, const char* topic,
                       const std::string& text) const noexcept {
  host.log(severity, topic, [&] { return "device " + std::to_string(ordinal) + text; });
}

void DeviceAccess::report_failed_end(const char* what, CUresult status) const noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (is_process_fault(report_status(status))) return;  // there is nothing left to end
  host.log(Severity::warning, "device", [&] {
    return "device " + std::to_string(ordinal) + what + ": " + status_text(table(), status);
  });
}

}  // namespace ctxbroker::detail
