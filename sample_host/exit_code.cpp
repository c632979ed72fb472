// SPDX-License-Identifier: Apache-2.0
#include "exit_code.hpp"

#include <array>
#include <string_view>
#include <system_error>

#include "text/shown_text.hpp"

namespace ctxbroker::sample_host {

namespace {

using detail::printable;

constexpr std::array rows{
    ExitCodeRow{ExitCode::ok, "ok", "success"},
    ExitCodeRow{ExitCode::internal, "internal", "an internal error of sample_host or the broker"},
    ExitCodeRow{ExitCode::usage, "usage",
                "the command line: unknown option, bad --plugin, unknown parameter, bad value, bad "
                "policy, graph file or preset"},
    ExitCodeRow{ExitCode::input, "input",
                "the input file: missing, unreadable, truncated, wrong format"},
    ExitCodeRow{
        ExitCode::output, "output",
        "the output file, or standard output: folder missing, not writable, disk full, format "
        "not written"},
    ExitCodeRow{ExitCode::plugin, "plugin",
                "a plug-in: not found, cannot be loaded, other ABI, init or processing failed, its "
                "work faulted or took too long, its process ended"},
    ExitCodeRow{ExitCode::driver, "driver",
                "the driver or device: unknown, missing, a call failed, not enough memory or "
                "multiprocessors"},
    ExitCodeRow{ExitCode::kernel_image, "kernel-image",
                "a plug-in's kernel image cannot be loaded here"},
    ExitCodeRow{ExitCode::needs_gpu, "needs-gpu",
                "a plug-in needs a GPU, and this is the software device"},
};

}  // namespace

std::span<const ExitCodeRow> exit_codes() noexcept {
  return rows;
}

ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::wrong_state:
    case ErrorKind::out_of_host_memory:
    case ErrorKind::system_limit:
      return ExitCode::internal;
    case ErrorKind::policy:
    case ErrorKind::preset:
    case ErrorKind::unknown_parameter:
    case ErrorKind::parameter_value:
      return ExitCode::usage;
    case ErrorKind::driver_choice:
    case ErrorKind::no_driver:
    case ErrorKind::no_device:
    case ErrorKind::driver_call:
    case ErrorKind::out_of_memory:
    case ErrorKind::lease_unavailable:
      return ExitCode::driver;
    case ErrorKind::kernel_image:
      return ExitCode::kernel_image;
    case ErrorKind::plugin_not_found:
    case ErrorKind::plugin_load:
    case ErrorKind::plugin_entry:
    case ErrorKind::plugin_version:
    case ErrorKind::plugin_init:
    case ErrorKind::plugin_failed:
    case ErrorKind::over_limit:    // a latency, for example
    case ErrorKind::context_lost:  // all work on the device is that of plug-ins
      return ExitCode::plugin;
    case ErrorKind::output_file:
      return ExitCode::output;
    case ErrorKind::needs_gpu:
      return ExitCode::needs_gpu;
  }
  return ExitCode::internal;
}

bool is_fault(const Error& error) noexcept {
  if (error.kind() != ErrorKind::context_lost) return false;
  return error.origin().status != 0 || error.origin().call == faulted_worker_process;
}

std::string next_step(const Error& error) {
  const bool has_log = error.message().find('\n') != std::string::npos;
  switch (error.kind()) {
    case ErrorKind::invalid_argument:
    case ErrorKind::wrong_state:
      return "this is a defect of sample_host, so report it with the command line";
    case ErrorKind::driver_call:
    case ErrorKind::no_device:
      return "see sample_host doctor";
    case ErrorKind::out_of_host_memory:
      return "use a smaller picture or block or fewer --jobs, or free memory of the system";
    case ErrorKind::system_limit:
      return "close other programs, or raise the limits of this shell (ulimit)";
    case ErrorKind::over_limit:
      return "leave the plug-in out";
    case ErrorKind::out_of_memory:
      return "use a smaller picture or block, fewer --jobs or another --device, or raise the "
             "budget in the policy file";
    case ErrorKind::context_lost:
      if (error.origin().call == worker_process || error.origin().call == faulted_worker_process) {
        return "leave the plug-in out, or report this to its author";
      }
      if (error.origin().call == late_worker_process ||
          error.message().find("did not end within") != std::string::npos) {
        return "leave the plug-in out; if the work is only long, give it more time with "
               "--job-timeout";
      }
      if (error.origin().status == 0) return "run it again; if it stays so, leave the plug-in out";
      // The software device has said where.
      if (error.message().find(", thread (") != std::string::npos) {
        return "leave the plug-in out, or report this to its author";
      }
      return "leave the plug-in out, or report this to its author; with --driver software, the "
             "error names the line of the plug-in's source";
    case ErrorKind::lease_unavailable:
      return "ask for fewer multiprocessors, or for another kind of lease (--lease)";
    case ErrorKind::kernel_image:
      return has_log ? "" : "get a build of the plug-in for this device, or use another --device";
    case ErrorKind::plugin_not_found:
      return "sample_host list shows the plug-ins that were found";
    case ErrorKind::plugin_load:
      return "install the plug-in again, with the libraries that it needs";
    case ErrorKind::plugin_entry:
    case ErrorKind::plugin_init:
    case ErrorKind::plugin_failed:
      return "leave the plug-in out, or report this to its author";
    case ErrorKind::output_file:
      return "name another file";
    case ErrorKind::driver_choice:
    case ErrorKind::no_driver:
    case ErrorKind::plugin_version:
    case ErrorKind::policy:
    case ErrorKind::preset:
    case ErrorKind::unknown_parameter:
    case ErrorKind::parameter_value:
    case ErrorKind::needs_gpu:
      break;
  }
  return {};
}

namespace {

bool is_end_of_worker(const Error& error) {
  const std::string& call = error.origin().call;
  return call == worker_process || call == late_worker_process || call == faulted_worker_process;
}

std::string with_next_step(const Error& error, const std::string& where) {
  const std::string next = next_step(error);
  const std::string text = is_end_of_worker(error) ? error.message() : error.what();
  return where + text + (next.empty() ? "" : "; " + next);
}

}  // namespace

Failure::Failure(ExitCode code, const std::string& message)
    : std::runtime_error(printable(message)), code_(code) {}

Failure::Failure(const Error& error, const std::string& where)
    : std::runtime_error(printable(with_next_step(error, where))),
      code_(exit_code_of(error.kind())),
      kind_(to_string(error.kind())),
      tenant_(error.origin().tenant) {}

Failure::Failure(const Failure& failure, const std::string& where)
    : std::runtime_error(printable(where) + failure.what()),
      code_(failure.code_),
      kind_(failure.kind_),
      tenant_(failure.tenant_) {}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace ctxbroker::sample_host
