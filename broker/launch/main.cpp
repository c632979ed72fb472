// SPDX-License-Identifier: Apache-2.0
// ctxb-run: runs a program with the gate before the driver and a broker in its process. It checks
// all that it can, puts what the process needs into the environment, and becomes the program.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "check.hpp"
#include "ctxbroker/version.hpp"
#include "environment.hpp"
#include "exit_code.hpp"
#include "first_report.hpp"
#include "observe/standard_output.hpp"
#include "options.hpp"
#include "policy_text.hpp"
#include "program.hpp"
#include "settings.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker::launch {
namespace {

Settings make_settings(const Options& options) {
  Settings settings;
  settings.children = options.children;
  settings.pid = ::getpid();  // the program keeps it
  settings.version = version();
  settings.policy = make_policy(options);
  settings.report = output_path("--report", options.report);
  settings.trace = output_path("--trace", options.trace);
  settings.log = options.log;
  settings.verbose = options.verbose;
  settings.driver = options.driver;
  settings.command = shortened(options.command);
  return settings;
}

using SignalHandler = void (*)(int);

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& one : texts) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<Input> inputs_of(const Options& options, const OwnFiles& files,
                             const Program& program) {
  std::vector<Input> inputs{{options.policy, "the file of --policy too"},
                            {program.path, "the program that is to run"},
                            {"/proc/self/exe", "ctxb-run itself"},
                            {files.launcher, "a part of ctxb-run"},
                            {files.gate, "a part of ctxb-run"}};
  for (const std::string& path : program.run_by) {
    inputs.push_back({path, "a program that is to run"});
  }
  // A script or its data, which the program has not read yet.
  for (std::size_t i = 1; i < options.command.size(); ++i) {
    inputs.push_back({options.command[i], "an argument of the program"});
  }
  return inputs;
}

// Returns only by an exception. The program gets `limit_signal` for SIGXFSZ.
[[noreturn]] void become(const Program& program, std::vector<std::string> command,
                         std::vector<std::string> variables, SignalHandler limit_signal) {
  std::signal(SIGXFSZ, limit_signal);
  ::execve(program.path.c_str(), pointers_to(command).data(), pointers_to(variables).data());
  const int error = errno;
  std::string why = std::generic_category().message(error);
  if (error == E2BIG) {
    why =
        "the policy, the arguments and the environment are too large together; use a shorter "
        "policy";
  }
  throw Failure(ExitCode::cannot_run, program.path + ": it cannot be executed: " + why);
}

ExitCode run(int argc, const char* const* argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return ExitCode::ok;
  const Settings settings = make_settings(*options);
  const OwnFiles files = find_own_files(settings);
  const Program program = examine_program(options->command);
  check_outputs(settings, inputs_of(*options, files, program));
  if (options->check) {
    std::fputs(detail::printable(check_text(*options, settings, program)).c_str(), stdout);
    return ExitCode::ok;
  }
  // A report beyond the limit on the size of files is an error of this program, and not its end.
  const SignalHandler limit_signal = std::signal(SIGXFSZ, SIG_IGN);
  write_first_report(settings);
  become(program, options->command, make_environment(files, settings), limit_signal);
}

int run_and_report(int argc, const char* const* argv) noexcept {
  try {
    const ExitCode code = run(argc, argv);
    if (!detail::all_is_printed()) throw Failure(ExitCode::failed, detail::not_printed);
    return static_cast<int>(code);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "ctxb-run: error: %s\n", detail::printable(failure.what()).c_str());
    return static_cast<int>(failure.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ctxb-run: error: %s; this is a defect of ctxb-run, so report it\n",
                 detail::printable(error.what()).c_str());
    return static_cast<int>(ExitCode::failed);
  }
}

}  // namespace
}  // namespace ctxbroker::launch

int main(int argc, char** argv) {
  return ctxbroker::launch::run_and_report(argc, argv);
}
