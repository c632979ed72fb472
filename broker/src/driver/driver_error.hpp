// What a driver's status means, and the Error that carries it.
#pragma once

#include <string>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA error 12345" when the driver has no name for it. Static text of
// the driver where it has one.
std::string status_name(const DriverTable& driver, CUresult status);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string status_text(const DriverTable& driver, CUresult status);

// Which kind of Error a status is.
ErrorKind kind_of(CUresult status) noexcept;

// True for a status that a driver returns from every call, in every context of the process and on
// every device, once a kernel has faulted.
bool is_process_fault(CUresult status) noexcept;

// True for such a fault, and for a context that somebody destroyed.
bool loses_context(CUresult status) noexcept;

// Whom a driver call was made for.
struct CallOwner {
  int device = -1;
  std::string_view tenant = "host";
};

// `doing` says what failed in the caller's words: "cannot allocate 12 bytes".
Error driver_error(const DriverTable& driver, CUresult status, const char* call,
                   const std::string& doing, CallOwner owner);

// Throws driver_error unless `status` is CUDA_SUCCESS. `doing` is a callable that gives the text,
// so that a call that goes well builds none.
template <typename Doing>
void check(const DriverTable& driver, CUresult status, const char* call, CallOwner owner,
           Doing&& doing) {
  if (status != CUDA_SUCCESS) throw driver_error(driver, status, call, doing(), owner);
}

}  // namespace ctxbroker::detail
