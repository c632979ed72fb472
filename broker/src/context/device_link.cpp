#include "context/device_link.hpp"

namespace ctxbroker::detail {

CUresult DeviceLink::report_status(CUresult status) const noexcept {
  fault.report_status(status, table(), ordinal, host);
  return status;
}

void DeviceLink::log(Severity severity, const char* topic, const std::string& text) const noexcept {
  try {
    host.log(severity, topic, "device " + std::to_string(ordinal) + text);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

void DeviceLink::report_failed_end(const char* what, CUresult status) const noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (is_process_fault(report_status(status))) return;  // there is nothing left to end
  try {
    log(Severity::warning, "device", std::string(what) + ": " + status_text(table(), status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): called by destructors
  }
}

}  // namespace ctxbroker::detail
