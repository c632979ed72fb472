// SPDX-License-Identifier: Apache-2.0
#include "exit_code.hpp"

#include <array>
#include <system_error>

namespace ctxbroker::sample_host {

namespace {

constexpr std::array rows{
    ExitCodeRow{ExitCode::ok, "success"},
    ExitCodeRow{ExitCode::internal, "an internal error of sample_host or the broker"},
    ExitCodeRow{ExitCode::usage,
                "the command line: unknown option, bad --plugin, unknown parameter, bad value, bad "
                "policy, graph file or preset"},
    ExitCodeRow{ExitCode::input, "the input file: missing, unreadable, truncated, wrong format"},
    ExitCodeRow{ExitCode::output,
                "the output file: folder missing, not writable, disk full, format not written"},
    ExitCodeRow{ExitCode::plugin,
                "a plug-in: not found, cannot be loaded, other ABI, init or processing failed"},
    ExitCodeRow{ExitCode::driver,
                "the driver or device: unknown, missing, a call failed, not enough memory or "
                "multiprocessors"},
    ExitCodeRow{ExitCode::kernel_image, "a plug-in's kernel image cannot be loaded here"},
    ExitCodeRow{ExitCode::needs_gpu, "a plug-in needs a GPU, and this is the software device"},
};

}  // namespace

std::span<const ExitCodeRow> exit_codes() noexcept {
  return rows;
}

ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::wrong_state:
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
    case ErrorKind::context_lost:
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
      return ExitCode::plugin;
    case ErrorKind::output_file:
      return ExitCode::output;
    case ErrorKind::needs_gpu:
      return ExitCode::needs_gpu;
  }
  return ExitCode::internal;
}

std::string explained(const Error& error) {
  const std::string text = error.what();
  const bool took_too_long = error.kind() == ErrorKind::context_lost &&
                             text.find("did not end within") != std::string::npos;
  return took_too_long ? text + "; if the work is only long, give it more time with --job-timeout"
                       : text;
}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace ctxbroker::sample_host
