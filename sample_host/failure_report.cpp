// SPDX-License-Identifier: Apache-2.0
#include "failure_report.hpp"

#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "files/cleanup.hpp"
#include "files/output_file.hpp"
#include "files/start.hpp"
#include "logging.hpp"
#include "report.hpp"
#include "terminal.hpp"

namespace ctxbroker::sample_host {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "ctxbroker.sample_host.report/1";

const char* name_of(Command command) {
  switch (command) {
    case Command::image:
      return "image";
    case Command::audio:
      return "audio";
    case Command::list:
      return "list";
    case Command::doctor:
      return "doctor";
    case Command::kernels:
      return "kernels";
  }
  return "";
}

Json failure_json(const Options& options, int exit_code, const Json& error) {
  Json json{{"schema", schema},
            {"command", name_of(options.command)},
            {"success", false},
            {"exit_code", exit_code},
            {"error", error},
            {"plugins", options.plugins},
            {"graph", options.graph.string()},
            {"inputs", options.inputs},
            {"outputs", options.outputs},
            {"strikes", Json::array()}};
  for (const StrikeCount& one : told_strikes()) {
    json["strikes"].push_back({{"tenant", one.tenant}, {"strikes", one.strikes}});
  }
  return json;
}

const char* kind_of(ExitCode code) {
  for (const ExitCodeRow& row : exit_codes()) {
    if (row.code == code) return row.name;
  }
  return "internal";
}

// Whether the report may go there: nothing is there, or an older report. Anything else may be a
// file of the run, whose names are not all known where a graph file is wrong.
bool is_safe(const std::string& path) {
  if (path == "-") return true;
  std::error_code error;
  const std::filesystem::path there = from_start(path);
  if (!std::filesystem::exists(there, error)) return true;
  if (!std::filesystem::is_regular_file(there, error)) return false;
  std::ifstream file(there);
  std::string begin(256, ' ');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin.find(schema) != std::string::npos;
}

}  // namespace

void report_signals(const Options& options) {
  if (options.report.empty() || !is_safe(options.report)) return;
  cleanup::leave_report(options.report, [&](int signal_number) {
    const bool is_interrupt = signal_number == SIGINT || signal_number == SIGTERM;
    if (signal_number == 0) {
      return dump(failure_json(options, static_cast<int>(ExitCode::plugin),
                               {{"kind", "plugin-failed"},
                                {"text",
                                 "a plug-in ended the process with exit; standard error "
                                 "names it"},
                                {"library", ""}}));
    }
    constexpr int shell_adds = 128;
    return dump(failure_json(
        options, shell_adds + signal_number,
        {{"kind", is_interrupt ? "interrupted" : "signal"},
         {"signal", std::string("SIG") + sigabbrev_np(signal_number)},
         {"text", is_interrupt ? "the command was interrupted; complete files stay"
                               : "a signal ended the command; standard error says more if it was "
                                 "a plug-in"},
         {"library", ""}}));
  });
}

void write_failure_report(const Options& options, const Failure& failure) noexcept {
  if (options.report.empty()) return;
  try {
    const std::string kind = failure.kind().empty() ? kind_of(failure.code()) : failure.kind();
    const std::string text = dump(
        failure_json(options, static_cast<int>(failure.code()),
                     {{"kind", kind}, {"text", failure.what()}, {"library", failure.tenant()}}));
    if (options.report == "-") {
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
      return;
    }
    if (!is_safe(options.report)) return;
    OutputFile file(options.report);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception& error) {
    if (std::string_view(error.what()) == failure.what()) return;  // it is said already
    print_error(std::string("the report of the failure: ") + error.what(), use_colour());
  }
}

}  // namespace ctxbroker::sample_host
