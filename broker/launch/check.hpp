// SPDX-License-Identifier: Apache-2.0
// ctxb-run --check.
#pragma once

#include <string>

#include "options.hpp"
#include "program.hpp"
#include "settings.hpp"

namespace ctxbroker::launch {

// Says what a run would do, and what it cannot hold.
std::string check_text(const Options& options, const Settings& settings, const Program& program);

}  // namespace ctxbroker::launch
