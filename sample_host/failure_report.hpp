// SPDX-License-Identifier: Apache-2.0
// The report of a run that failed: what --json gets instead of the whole one.
#pragma once

#include "exit_code.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// From now on, a signal that ends the process leaves a report, too. Does nothing without --json.
void report_signals(const Options& options);

// Writes the report of a failure, if --json asks for one. What cannot be written is said on
// standard error.
void write_failure_report(const Options& options, const Failure& failure) noexcept;

}  // namespace ctxbroker::sample_host
