// SPDX-License-Identifier: Apache-2.0
// Records of the broker, the plug-ins and sample_host itself, on their way to Boost.Log.
#pragma once

#include <string>

#include "ctxbroker/record.hpp"

namespace ctxbroker::sample_host {

// Lines on standard error from a threshold that follows the verbosity: -1 errors, 0 warnings,
// 1 info, 2 debug. Call once.
void start_logging(int verbosity, bool colour);

RecordSink record_sink();

// A record of sample_host's own.
void log(Severity severity, const char* topic, const std::string& text);

}  // namespace ctxbroker::sample_host
