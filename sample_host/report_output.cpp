// SPDX-License-Identifier: Apache-2.0
#include "report_output.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "exit_code.hpp"
#include "files/cleanup.hpp"
#include "files/start.hpp"

namespace ctxbroker::sample_host {

bool same_place(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  return std::filesystem::weakly_canonical(from_start(a), error) ==
         std::filesystem::weakly_canonical(from_start(b), error);
}

bool is_in_use(const std::filesystem::path& path, const Options& options, const GraphPlan& plan) {
  if (!options.graph.empty() && same_place(path, options.graph)) return true;
  for (const std::vector<PlannedPort>* ports : {&plan.inputs, &plan.outputs}) {
    for (const PlannedPort& port : *ports) {
      if (same_place(path, port.file)) return true;
    }
  }
  return false;
}

ReportOutput::ReportOutput(const Options& options, const GraphPlan& plan)
    : quiet_(options.verbosity < 0),
      verbose_(options.verbosity > 0),
      json_on_stdout_(options.report == "-") {
  if (options.report.empty() || json_on_stdout_) return;
  if (is_in_use(options.report, options, plan)) {
    throw Failure(ExitCode::usage, "--json \"" + options.report +
                                       "\" is an input, an output or the graph; name another file");
  }
  file_.emplace(options.report);
}

void ReportOutput::write(const Report& report) {
  const std::string json = dump(report_to_json(report));
  if (file_) {
    file_->write(json.data(), json.size());
    file_->commit();
    cleanup::report_is_written();
  }
  if (json_on_stdout_) {
    cleanup::report_is_written();
    std::fputs(json.c_str(), stdout);
  } else if (!quiet_) {
    std::fputs(format_report(report, verbose_).c_str(), stdout);
  }
}

}  // namespace ctxbroker::sample_host
