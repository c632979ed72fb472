// SPDX-License-Identifier: Apache-2.0
// The behaviour manifest: what a library's plug-ins do to CUDA and to the process.
#pragma once

#include <nlohmann/json.hpp>

#include "runner.hpp"

namespace ctxbroker::validate {

// Follows the schema "ctxbroker.behaviour/1". Each plug-in is observed in a child process.
nlohmann::ordered_json behaviour_of(const Options& options);

}  // namespace ctxbroker::validate
