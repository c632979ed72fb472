// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ctxbroker::launch {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* schema = "ctxbroker.run_settings/1";
constexpr Severity severities[] = {Severity::debug, Severity::info, Severity::warning,
                                   Severity::error};

}  // namespace

std::optional<Severity> parse_severity(const std::string& text) noexcept {
  for (const Severity one : severities) {
    if (text == to_string(one)) return one;
  }
  return std::nullopt;
}

std::vector<std::string> shortened(const std::vector<std::string>& command) {
  constexpr std::size_t most = 8192;
  std::vector<std::string> kept;
  std::size_t bytes = 0;
  for (const std::string& word : command) {
    bytes += word.size() + 1;
    if (bytes > most) {
      kept.emplace_back("...");
      break;
    }
    kept.push_back(word);
  }
  return kept;
}

std::string to_text(const Settings& settings) {
  Json json{{"children", settings.children},
            {"pid", settings.pid},
            {"schema", schema},
            {"version", settings.version},
            {"policy", Json::parse(settings.policy)},
            {"report", settings.report},
            {"trace", settings.trace},
            {"log", settings.log ? to_string(*settings.log) : ""},
            {"verbose", settings.verbose},
            {"driver", settings.driver ? to_string(*settings.driver) : ""},
            {"command", settings.command}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Settings parse_settings(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != schema) throw std::runtime_error("it is of another version");
    Settings settings;
    settings.children = json.at("children").get<bool>();
    settings.version = json.at("version").get<std::string>();
    settings.pid = json.at("pid").get<int>();
    settings.policy = json.at("policy").dump();
    settings.report = json.at("report").get<std::string>();
    settings.trace = json.at("trace").get<std::string>();
    settings.log = parse_severity(json.at("log").get<std::string>());
    settings.verbose = json.at("verbose").get<bool>();
    settings.driver = parse_driver_choice(json.at("driver").get<std::string>());
    settings.command = json.at("command").get<std::vector<std::string>>();
    return settings;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("the variable ") + settings_variable +
                             " cannot be used: " + error.what());
  }
}

}  // namespace ctxbroker::launch
