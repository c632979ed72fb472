// SPDX-License-Identifier: Apache-2.0
// Which libraries the user has disabled.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

namespace ctxbroker::detail {

// $XDG_CONFIG_HOME/ctxbroker/disabled.json, or empty.
std::filesystem::path default_choices();

// The paths in the text. Throws json::DocumentError.
std::set<std::string> parse_disabled(std::string_view text, const std::string& document);
// Throws json::DocumentError. None when there is no such file, or no path is given.
std::set<std::string> read_disabled(const std::filesystem::path& file);
// Throws Error (output_file).
void write_disabled(const std::filesystem::path& file, const std::set<std::string>& disabled);

}  // namespace ctxbroker::detail
