// SPDX-License-Identifier: Apache-2.0
// The policy of a run under ctxb-run, for a program that opens a broker itself.
#pragma once

#include "ctxbroker/policy.hpp"

namespace ctxbroker::detail {

// The environment variable in which ctxb-run tells the program's process what the run is.
constexpr const char* run_variable = "CTXBROKER_RUN";

// Adds the run's policy behind the program's own, which counts first. Without a run, or where
// another broker of the process follows the run's policy already, returns `own`. Throws Error
// (policy) for an environment that ctxb-run has not written. [main] thread.
Policy with_policy_of_run(Policy own);

}  // namespace ctxbroker::detail
