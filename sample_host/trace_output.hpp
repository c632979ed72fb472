// SPDX-License-Identifier: Apache-2.0
// Where --trace puts a run's timeline.
#pragma once

#include <optional>

#include "engine.hpp"
#include "files/output_file.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// Opened before the work, so that a trace that cannot be written is known before it.
class TraceOutput {
 public:
  // Throws Failure (output).
  explicit TraceOutput(const Options& options);

  // Stops the timeline and writes it. Does nothing without --trace. Throws Failure (output).
  void write(Engine& engine);

 private:
  std::optional<OutputFile> file_;
};

}  // namespace ctxbroker::sample_host
