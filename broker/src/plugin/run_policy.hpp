// SPDX-License-Identifier: Apache-2.0
// The policy of a run under ctxb-run, for whoever opens a broker in the program's process.
#pragma once

#include "ctxbroker/policy.hpp"

namespace ctxbroker::detail {

// Adds the run's policy behind `own`, which counts first. Without a run, or where another broker of
// the process follows the run's policy already, returns `own`. Throws Error (policy) for settings
// of a run that ctxb-run has not written. [main] thread.
Policy with_policy_of_run(Policy own);

}  // namespace ctxbroker::detail
