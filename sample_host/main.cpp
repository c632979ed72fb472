// SPDX-License-Identifier: Apache-2.0
// sample_host: photographs and recordings through CUDA plug-ins.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "commands.hpp"
#include "files/output_file.hpp"
#include "logging.hpp"
#include "probe_report.hpp"
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

ExitCode run(int argc, const char* const* argv) {
  const bool colour = use_colour();
  try {
    const std::optional<Options> options = parse_options(argc, argv);
    if (!options) return ExitCode::ok;
    start_logging(options->verbosity, colour);
    remove_on_signals();
    const ExitCode code = dispatch(*options);
    if (std::fflush(stdout) != 0) {
      throw Failure(ExitCode::output, "standard output cannot be written");
    }
    return code;
  } catch (const Failure& failure) {
    print_error(failure.what(), colour);
    return failure.code();
  } catch (const Error& error) {
    print_error(explained(error), colour);
    return exit_code_of(error.kind());
  } catch (const std::bad_alloc&) {
    print_error("not enough memory; use a smaller input or block", colour);
  } catch (const std::exception& error) {
    print_error(std::string("unexpected: ") + error.what(), colour);
  }
  return ExitCode::internal;
}

}  // namespace

}  // namespace ctxbroker::sample_host

int main(int argc, char** argv) {
  // Started by doctor --probe; it may crash, and has nothing to do with what follows.
  if (argc > 1 && std::string_view(argv[1]) == ctxbroker::sample_host::probe_command) {
    return ctxbroker::run_probe({argv + 2, argv + argc});
  }
  return static_cast<int>(ctxbroker::sample_host::run(argc, argv));
}
