// SPDX-License-Identifier: Apache-2.0
// Where --json puts a run's report.
#pragma once

#include <optional>

#include "files/output_file.hpp"
#include "options.hpp"
#include "report.hpp"

namespace ctxbroker::sample_host {

// Opened before the work, so that a report that cannot be written is known before it.
class ReportOutput {
 public:
  // Throws Failure (output).
  explicit ReportOutput(const Options& options);

  // Standard output (unless quiet), and the file. Throws Failure (output).
  void write(const Report& report);

 private:
  bool quiet_;
  bool verbose_;
  bool json_on_stdout_;
  std::optional<OutputFile> file_;
};

}  // namespace ctxbroker::sample_host
