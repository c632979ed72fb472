// A catalogue as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "catalogue.hpp"

namespace ctxbroker::sample_host {

std::string format_plugin(const PluginDescription& plugin);  // several lines
nlohmann::ordered_json to_json(const PluginDescription& plugin);
nlohmann::ordered_json to_json(const Problem& problem);

// "-10 .. 10", "off, on", "low, high".
std::string format_range(const ParameterDescription& parameter);
// A value as --plugin takes it: "0.7", "on", a choice's name.
std::string format_value(const ParameterDescription& parameter, double value);

}  // namespace ctxbroker::sample_host
