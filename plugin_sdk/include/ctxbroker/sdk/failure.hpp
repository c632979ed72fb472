// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a plug-in says that something failed: with an exception inside the library, and with a
/// status outside.
#pragma once

#include <stdexcept>
#include <string>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

/// Returns a status in words: "out of device memory", ... Static text, never null. [any]
[[nodiscard]] inline const char* status_text(ctxb_status status) noexcept {
  switch (status) {
    case CTXB_OK:
      return "success";
    case CTXB_AGAIN:
      return "not ready";
    case CTXB_BYPASS:
      return "nothing to do";
    case CTXB_ERROR:
      return "error";
    case CTXB_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case CTXB_ERROR_UNSUPPORTED:
      return "not supported";
    case CTXB_ERROR_UNAVAILABLE:
      return "not available now";
    case CTXB_ERROR_OUT_OF_DEVICE_MEMORY:
      return "out of device memory";
    case CTXB_ERROR_OUT_OF_HOST_MEMORY:
      return "out of host memory";
    case CTXB_ERROR_NO_KERNEL_IMAGE:
      return "no kernel image for this device";
    case CTXB_ERROR_CONTEXT_LOST:
      return "context lost";
    case CTXB_ERROR_DEADLINE:
      return "deadline missed";
    case CTXB_ERROR_VERSION:
      return "unknown version";
    case CTXB_ERROR_WRONG_STATE:
      return "called in the wrong state";
    case CTXB_ERROR_DRIVER:
      return "CUDA driver error";
    case CTXB_ERROR_NOT_FOUND:
      return "not found";
    case CTXB_ERROR_SYSTEM_LIMIT:
      return "no more descriptors, threads or mappings";
    default:
      return "unknown status";
  }
}

/// The exception to throw from a member function of a plug-in. The host gets its status and its
/// text. The text should say what failed, where, why, and what to do.
class Failure : public std::runtime_error {
 public:
  /// @param status         CTXB_ERROR_*.
  /// @param text           one sentence or more.
  /// @param driver_status  the CUresult, or 0 when there is none.
  Failure(ctxb_status status, const std::string& text, int driver_status = 0)
      : std::runtime_error(text), status_(status), driver_status_(driver_status) {}

  [[nodiscard]] ctxb_status status() const noexcept { return status_; }
  [[nodiscard]] int driver_status() const noexcept { return driver_status_; }

 private:
  ctxb_status status_;
  int driver_status_;
};

namespace detail {

// Turns the status of a call into the host into an exception; soft statuses pass.
inline void check_success(ctxb_status status, const std::string& what) {
  if (status < 0) {
    throw Failure(status, what + ": " + status_text(status));
  }
}

}  // namespace detail
}  // namespace ctxbroker::sdk
