// SPDX-License-Identifier: Apache-2.0
// Checks jobs before the plug-ins see them. All functions throw Error (invalid_argument).
#pragma once

#include <string>

#include "ctxbroker/graph.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

// Throws the error, with "graph: " in front of the reason.
[[noreturn]] void refuse_job(const std::string& why);
void check_info(const Wiring& wiring, const JobInfo& job);
// Also checks what check_info does.
void check_job(const Wiring& wiring, const ActivationSizes& sizes, const JobBuffers& buffers,
               const JobInfo& job);
// Refuses a rate other than the active one: filters and delays were made for it in activate. `what`
// has the rate, and `plugin` is active for another one.
void check_rate(const char* what, double rate, const std::string& plugin, double active);

}  // namespace ctxbroker::detail
