// SPDX-License-Identifier: Apache-2.0
// The Error for a call of the system's that failed.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {

// `error` is errno. `what` says what was to be done and why that failed; the remedy is added.
inline Error system_failure(int error, std::string what) {
  switch (error) {
    case ENOMEM:
    case ENOSPC:
      return {ErrorKind::out_of_host_memory,
              std::move(what) + "; free memory of the system, or raise the process's limit"};
    default:
      return {ErrorKind::system_limit,
              std::move(what) +
                  "; close descriptors, threads or mappings that the process does "
                  "not need, or raise its limits (ulimit)"};
  }
}

inline Error system_failure(const std::system_error& error) {
  return system_failure(error.code().value(), error.what());
}

}  // namespace ctxbroker::detail
