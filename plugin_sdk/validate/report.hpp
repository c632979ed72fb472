// SPDX-License-Identifier: Apache-2.0
// What the validator prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner.hpp"

namespace ctxbroker::validate {

std::string text_of(const Options& options, const Result& result, bool verbose);
std::string summary_text(const Options& options, const std::vector<Result>& results);
// Follows the schema "ctxbroker.validate/1".
nlohmann::ordered_json json_of(const Options& options, const std::vector<Result>& results);
bool all_well(const std::vector<Result>& results);

// The ladder as a table in Markdown.
std::string ladder_text();

}  // namespace ctxbroker::validate
