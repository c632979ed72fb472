// SPDX-License-Identifier: Apache-2.0
// Files of analysers' results, as JSON: one row for each job.
#pragma once

#include <cstddef>
#include <cstdint>

#include "files/output_file.hpp"
#include "graph_plan.hpp"

namespace ctxbroker::sample_host {

// Returns how many floats hold so many bytes.
std::size_t words_of(std::uint32_t result_bytes) noexcept;

// One thread at a time.
class ResultsFile {
 public:
  // Begins the file. `port` is borrowed. Throws Failure (output).
  explicit ResultsFile(const PlannedPort& port);

  // Adds a job's row: where the job began, how many frames it had (1 for an image), and what the
  // analyser gave. In the order of the jobs.
  void add(std::int64_t position, std::uint32_t frames, const void* results, std::uint32_t bytes);
  std::uint64_t rows() const noexcept { return rows_; }

  // Completes the file; does not commit it. Throws Failure (output).
  void finish();
  void commit() { file_.commit(); }

 private:
  void write(const std::string& text);

  const PlannedPort& port_;
  OutputFile file_;
  std::uint64_t rows_ = 0;
};

}  // namespace ctxbroker::sample_host
