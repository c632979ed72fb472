// SPDX-License-Identifier: Apache-2.0
// The policy of a run: what the file says, with what the command line adds.
#pragma once

#include <string>

#include "options.hpp"

namespace ctxbroker::launch {

// Returns it as JSON text. Patterns of --tenant come first, in their order, then those of the file,
// then that of --each. A lease behind --tenant counts more than the file's. Throws Failure.
std::string make_policy(const Options& options);

}  // namespace ctxbroker::launch
