#include "report_output.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "exit_code.hpp"

namespace ctxbroker::sample_host {

bool same_place(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  return std::filesystem::weakly_canonical(a, error) == std::filesystem::weakly_canonical(b, error);
}

ReportOutput::ReportOutput(const Options& options)
    : quiet_(options.verbosity < 0),
      verbose_(options.verbosity > 0),
      json_on_stdout_(options.report == "-") {
  if (options.report.empty() || json_on_stdout_) return;
  if (same_place(options.report, options.output) || same_place(options.report, options.input)) {
    throw Failure(ExitCode::usage, "--json \"" + options.report +
                                       "\" is the input or the output file; name another file");
  }
  file_.emplace(options.report);
}

void ReportOutput::write(const Report& report) {
  const std::string json = dump(report_to_json(report));
  if (file_) {
    file_->write(json.data(), json.size());
    file_->commit();
  }
  if (json_on_stdout_) {
    std::fputs(json.c_str(), stdout);
  } else if (!quiet_) {
    std::fputs(format_report(report, verbose_).c_str(), stdout);
  }
}

}  // namespace ctxbroker::sample_host
