// SPDX-License-Identifier: Apache-2.0
#include "trace_output.hpp"

#include "exit_code.hpp"
#include "logging.hpp"
#include "report_output.hpp"

namespace ctxbroker::sample_host {

TraceOutput::TraceOutput(const Options& options, const GraphPlan& plan) {
  if (options.trace.empty()) return;
  const bool is_report = !options.report.empty() && same_place(options.trace, options.report);
  if (is_report || is_in_use(options.trace, options, plan)) {
    throw Failure(ExitCode::usage,
                  "--trace \"" + options.trace.string() +
                      "\" is an input, an output, the graph or the report; name another file");
  }
  file_.emplace(options.trace);
}

void TraceOutput::write(Engine& engine) {
  if (!file_) return;
  const TimelineSummary summary = engine.write_timeline(
      [this](std::string_view text) { file_->write(text.data(), text.size()); });
  file_->commit();
  if (summary.dropped > 0) {
    log(Severity::warning, "trace",
        std::to_string(summary.dropped) + " of " + std::to_string(summary.dropped + summary.spans) +
            " spans did not fit into memory and are missing in the trace; use a shorter input");
  }
}

}  // namespace ctxbroker::sample_host
