// SPDX-License-Identifier: Apache-2.0
// Explains a driver's status and makes an Error from it.
#pragma once

#include <string>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Returns "CUDA_ERROR_OUT_OF_MEMORY", or "CUDA error 12345" when the driver has no name for the
// status.
std::string status_name(const DriverTable& driver, CUresult status);

// What ended CUDA in this process, where the driver can tell: the software device can.
struct FaultDetails {
  std::string text;             // kernel, source line, thread, address, memory; empty: unknown
  const char* owner = nullptr;  // TenantIdentity::lasting_name of who launched the work, or null
};
FaultDetails fault_details(const DriverTable& driver);

// Returns "CUDA_ERROR_OUT_OF_MEMORY (out of memory)". For a fault, what fault_details says follows.
std::string status_text(const DriverTable& driver, CUresult status);

// Returns the kind of Error for a status.
ErrorKind kind_of(CUresult status) noexcept;

// True for the errors that a faulting kernel leaves behind: from then on, the driver returns such a
// status from every call in every context of the process, on every device.
bool is_process_fault(CUresult status) noexcept;

// True for such a fault and for the status of a destroyed context.
bool loses_context(CUresult status) noexcept;

// The device and the tenant that a driver call was made for.
struct CallOwner {
  int device = -1;
  std::string_view tenant = "host";
};

// Makes the Error for a failed call. `doing` says what failed: "cannot allocate 12 bytes".
Error driver_error(const DriverTable& driver, CUresult status, const char* call,
                   const std::string& doing, CallOwner owner);

// Throws driver_error unless `status` is CUDA_SUCCESS. `doing` is a callable that returns the text,
// so that a successful call does not build it.
template <typename Doing>
void check(const DriverTable& driver, CUresult status, const char* call, CallOwner owner,
           Doing&& doing) {
  if (status != CUDA_SUCCESS) throw driver_error(driver, status, call, doing(), owner);
}

}  // namespace ctxbroker::detail
