// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exception that the broker's functions throw.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// What went wrong, coarse enough for a program to act on.
enum class ErrorKind {
  invalid_argument,  ///< The caller passed something wrong. The text names the argument.
  wrong_state,       ///< The object's present state does not allow the call.
  driver_choice,     ///< CTXBROKER_DRIVER, or the option, does not name a driver.
  no_driver,         ///< This machine does not have the chosen driver.
  no_device,         ///< The driver has no such device, or none at all.
  driver_call,       ///< A CUDA driver call failed. See Error::Origin.
  out_of_memory,     ///< Device memory, or a budget of it, is used up. Free some and try again.
  context_lost,      ///< The lease's context is gone, or the lease is hung.
  /// The device cannot give the lease that was asked for, all ways into it are taken, or work of a
  /// neighbour that does not end keeps the driver from making a context or loading a module.
  lease_unavailable,
  kernel_image,      ///< A module's image cannot be loaded here. The text ends with the JIT log.
  plugin_not_found,  ///< There is no library or no plug-in of that name.
  /// The system's loader refused the library, and the text is the loader's own. Or the library
  /// cannot become the tenant's, and the text says why. Or a constructor or destructor of another
  /// library holds up the loader; the text names that library if the broker loads it.
  plugin_load,
  plugin_entry,       ///< The library is not a ctxbroker plug-in, or its entry is malformed.
  plugin_version,     ///< The library was built for another major version of the plug-in ABI.
  plugin_init,        ///< The library's init returned an error.
  plugin_failed,      ///< A plug-in's function returned an error. The text is what it said.
  policy,             ///< A policy cannot be used. The text names the file, the place and the rule.
  unknown_parameter,  ///< The plug-in has no such parameter.
  parameter_value,    ///< A value is out of range, or is not a number.
  output_file,        ///< A file cannot be written.
  needs_gpu,          ///< The plug-in works on NVIDIA's driver only, and another one is in use.
  preset,             ///< A preset cannot be used. The text names the file, the place and the rule.
  out_of_host_memory,  ///< The process is short of memory of its own, or may not lock any more.
  system_limit,  ///< The process may have no more descriptors, threads or mappings. Close some of
                 ///< them, or raise its limits (`ulimit`).
  over_limit,    ///< The call needs more than a limit of the broker's allows. The text names it.
};

/// Returns the kind's name in logs and JSON reports: "parameter-value". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(ErrorKind kind) noexcept;

/// The only exception type that the broker throws on purpose. `std::bad_alloc` is possible wherever
/// memory is allocated.
class CTXB_API Error : public std::runtime_error {
 public:
  /// Where a failure happened. Members that do not apply keep their defaults.
  struct Origin {
    std::string call = {};  ///< "cuMemAlloc_v2", "dlopen", "activate".
    /// A CUresult if status_name begins with "CUDA_", else a ctxb_status; 0 when there is none.
    int status = 0;
    std::string status_name = {};  ///< "CUDA_ERROR_OUT_OF_MEMORY", "CTXB_ERROR_UNSUPPORTED".
    int device = -1;               ///< CUDA device ordinal, or -1.
    std::string tenant = {};       ///< The plug-in library's name, "host", or empty.
  };

  /// Builds an error whose what() is `message`, followed by `origin` in words.
  Error(ErrorKind kind, const std::string& message, Origin origin);
  /// Builds an error without an origin.
  Error(ErrorKind kind, const std::string& message);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  /// The text without the origin.
  [[nodiscard]] const std::string& message() const& noexcept { return message_; }
  [[nodiscard]] std::string message() && { return std::move(message_); }
  [[nodiscard]] const Origin& origin() const& noexcept { return origin_; }
  [[nodiscard]] Origin origin() && { return std::move(origin_); }

 private:
  ErrorKind kind_;
  std::string message_;
  Origin origin_;
};

}  // namespace ctxbroker
