// SPDX-License-Identifier: Apache-2.0
#include "trace_output.hpp"

#include "logging.hpp"

namespace ctxbroker::sample_host {

TraceOutput::TraceOutput(const Options& options) {
  if (!options.trace.empty()) file_.emplace(options.trace);
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
