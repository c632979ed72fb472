// SPDX-License-Identifier: Apache-2.0
// What a job has to be, whatever the plug-ins say. All throw Error (invalid_argument).
#pragma once

#include <string>

#include "ctxbroker/graph.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

void check_info(const Wiring& wiring, const JobInfo& job);
// Also checks what check_info does.
void check_job(const Wiring& wiring, const ActivationSizes& sizes, const JobBuffers& buffers,
               const JobInfo& job);
// What depends on the rate (filters, delays) was made in activate, so another rate would be wrong.
// `what` has the rate, and `plugin` is active for another one.
void check_rate(const char* what, double rate, const std::string& plugin, double active);

}  // namespace ctxbroker::detail
