// SPDX-License-Identifier: Apache-2.0
// Where --json puts a run's report.
#pragma once

#include <filesystem>
#include <optional>

#include "files/output_file.hpp"
#include "graph_plan.hpp"
#include "options.hpp"
#include "report.hpp"

namespace ctxbroker::sample_host {

// Whether both paths lead to the same file, also one that is not there yet.
bool same_place(const std::filesystem::path& a, const std::filesystem::path& b);

// Whether a path is one of the plan's files, or the graph file.
bool is_in_use(const std::filesystem::path& path, const Options& options, const GraphPlan& plan);

// Opened before the work, so that a report that cannot be written is known before it.
class ReportOutput {
 public:
  // Throws Failure (output; usage when it would overwrite a file of the run).
  ReportOutput(const Options& options, const GraphPlan& plan);

  // Standard output (unless quiet), and the file. Throws Failure (output).
  void write(const Report& report);

 private:
  bool quiet_;
  bool verbose_;
  bool json_on_stdout_;
  std::optional<OutputFile> file_;
};

}  // namespace ctxbroker::sample_host
