// SPDX-License-Identifier: Apache-2.0
// What a scan found, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "catalogue.hpp"

namespace ctxbroker::sample_host {

std::string format_plugin(const PluginDescription& plugin);  // several lines
nlohmann::ordered_json to_json(const PluginDescription& plugin);
nlohmann::ordered_json to_json(const ScannedLibrary& library);
nlohmann::ordered_json problems_to_json(const ScanResult& found);

// "-10 .. 10", "off, on", "low, high".
std::string format_range(const ParameterDescription& parameter);
// As --plugin takes it: "0.7", "on", a choice's name.
std::string format_default(const ParameterDescription& parameter);
nlohmann::ordered_json value_to_json(const ParameterValue& value);

}  // namespace ctxbroker::sample_host
