// How the broker's set-up calls fail: one exception type that says what, where, why and what to do.
#pragma once

#include <stdexcept>
#include <string>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

// What went wrong, coarse enough to act on. `sample_host` gives each its own exit code.
enum class ErrorKind {
  invalid_argument,   // the caller's own mistake; the text names the argument
  wrong_state,        // right call, wrong time
  driver_choice,      // CTXBROKER_DRIVER (or the option) names no driver
  no_driver,          // the chosen driver is not on this machine
  no_device,          // the driver has no such device, or none at all
  driver_call,        // a CUDA driver call failed: see call, status, status_name
  out_of_memory,      // the same, device memory
  context_lost,       // the lease's context is gone
  lease_unavailable,  // the device cannot give what was asked for: not so many multiprocessors
  kernel_image,       // a module's image cannot be loaded here; the text ends with the JIT log
  plugin_not_found,   // no library or no plug-in of that name
  plugin_load,        // the loader refused the library; the text is the loader's own
  plugin_entry,       // the library is no ctxbroker plug-in, or its entry is malformed
  plugin_version,     // another ABI major
  plugin_init,        // the library's init returned an error
  plugin_failed,      // a plug-in's function returned an error; the text is what it said
  policy,             // a policy cannot be used: the text names file, place and what is allowed
  unknown_parameter,  // the plug-in has no such parameter
  parameter_value,    // a value out of range, or no number
  output_file,        // a file that was to be written cannot be
  needs_gpu,          // the plug-in works on NVIDIA's driver only, and another one is in use
};

// "parameter-value", ...: the name of a kind in logs and JSON reports.
CTXB_API const char* to_string(ErrorKind kind) noexcept;

class CTXB_API Error : public std::runtime_error {
 public:
  // Where a failure happened. Members that do not apply stay at their defaults.
  struct Origin {
    std::string call = {};         // "cuMemAlloc_v2", "dlopen", "activate"
    int status = 0;                // CUresult, ctxb_status or 0
    std::string status_name = {};  // "CUDA_ERROR_OUT_OF_MEMORY"
    int device = -1;               // CUDA ordinal, or -1
    std::string tenant = {};       // plug-in library's name, "host", or empty
  };

  // what() is `message`, followed by the origin in words where there is one.
  Error(ErrorKind kind, const std::string& message, Origin origin);
  Error(ErrorKind kind, const std::string& message);

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }  // without the origin
  const Origin& origin() const noexcept { return origin_; }

 private:
  ErrorKind kind_;
  std::string message_;
  Origin origin_;
};

}  // namespace ctxbroker
