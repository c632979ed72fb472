// SPDX-License-Identifier: Apache-2.0
// Records of the broker, the plug-ins and sample_host itself, on their way to Boost.Log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/metrics.hpp"
#include "ctxbroker/record.hpp"

namespace ctxbroker::sample_host {

// The broker's records go to Boost.Log. Of strikes of one kind, the first is shown, and all with
// -v.
//
// Lines on standard error from a threshold that follows the verbosity: -1 errors, 0 warnings,
// 1 info, 2 debug. Call once.
void start_logging(int verbosity, bool colour);

RecordSink record_sink();

// Says in one line for each plug-in library how many strikes it has got, and remembers it. Once for
// each broker, at its end.
void tell_strikes(const BrokerMetrics& metrics);

// What was told.
struct StrikeCount {
  std::string tenant;
  std::uint64_t strikes = 0;
};
std::vector<StrikeCount> told_strikes();

// A record of sample_host's own.
void log(Severity severity, const char* topic, const std::string& text);

}  // namespace ctxbroker::sample_host
