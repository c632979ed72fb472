// SPDX-License-Identifier: Apache-2.0
// Where an installation has what is its own.
#pragma once

#include <string>

namespace ctxbroker::launch {

// Returns lib/ctxbroker of the installation that the broker's library belongs to, as an absolute
// path without links in it. Throws Failure.
std::string own_folder();

}  // namespace ctxbroker::launch
