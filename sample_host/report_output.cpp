// SPDX-License-Identifier: Apache-2.0
#include "report_output.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "files/cleanup.hpp"

namespace ctxbroker::sample_host {

ReportOutput::ReportOutput(const Options& options)
    : quiet_(options.verbosity < 0),
      verbose_(options.verbosity > 0),
      json_on_stdout_(options.report == "-") {
  if (!options.report.empty() && !json_on_stdout_) file_.emplace(options.report);
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
