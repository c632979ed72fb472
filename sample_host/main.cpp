// SPDX-License-Identifier: Apache-2.0
// sample_host: photographs and recordings through CUDA plug-ins.
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "ctxbroker/crash_report.hpp"
#include "driver_check.hpp"
#include "failure_report.hpp"
#include "files/cleanup.hpp"
#include "files/output_file.hpp"
#include "files/start.hpp"
#include "logging.hpp"
#include "observe/standard_output.hpp"
#include "probe_report.hpp"
#include "process/environment.hpp"
#include "progress.hpp"
#include "terminal.hpp"

namespace ctxbroker::sample_host {

namespace {

ExitCode dispatch(const Options& options) {
  switch (options.command) {
    case Command::image:
      return run_image(options);
    case Command::audio:
      return run_audio(options);
    case Command::list:
      return run_list(options);
    case Command::doctor:
      return run_doctor(options);
    case Command::kernels:
      return run_kernels(options);
  }
  return ExitCode::internal;
}

// Any exception as a Failure.
Failure current_failure() {
  try {
    throw;
  } catch (const Failure& failure) {
    return failure;
  } catch (const Error& error) {
    return Failure(error);
  } catch (const std::bad_alloc&) {
    return {ExitCode::internal, "not enough memory; use a smaller input or block"};
  } catch (const std::exception& error) {
    return {ExitCode::internal, std::string("unexpected: ") + error.what() +
                                    "; this is a defect of sample_host, so report it with the "
                                    "command line"};
  }
}

void check_printed() {
  if (!detail::all_is_printed()) throw Failure(ExitCode::output, detail::not_printed);
}

ExitCode run(int argc, const char* const* argv) {
  const bool colour = use_colour();
  remember_start();
  std::optional<Options> options;
  try {
    const detail::KeptEnvironment environment;  // before plug-ins come
    options = parse_options(argc, argv);
    if (!options) {  // help or the version
      check_printed();
      return ExitCode::ok;
    }
    start_logging(options->verbosity, colour);
    remove_on_signals();
    report_signals(*options);
    name_crashes(true);
    const WaitNotice notice(options->verbosity >= 0);
    const ExitCode code = dispatch(*options);
    check_printed();
    return code;
  } catch (...) {
    const Failure failure = current_failure();
    print_error(failure.what(), colour);
    if (options) write_failure_report(*options, failure);
    return failure.code();
  }
}

}  // namespace

}  // namespace ctxbroker::sample_host

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == ctxbroker::sample_host::driver_check_command) {
    return ctxbroker::sample_host::run_driver_check({argv + 2, argv + argc});
  }
  // Started by doctor --probe; it may crash, and has nothing to do with what follows.
  if (argc > 1 && std::string_view(argv[1]) == ctxbroker::sample_host::probe_command) {
    return ctxbroker::run_probe({argv + 2, argv + argc});
  }
  const auto code = ctxbroker::sample_host::run(argc, argv);
  ctxbroker::sample_host::cleanup::let_exit();
  return static_cast<int>(code);
}
