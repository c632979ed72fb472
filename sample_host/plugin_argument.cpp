// SPDX-License-Identifier: Apache-2.0
#include "plugin_argument.hpp"

#include <algorithm>
#include <string_view>

#include "exit_code.hpp"

namespace ctxbroker::sample_host {

namespace {

Failure failure(const std::string& text, const std::string& why) {
  return {ExitCode::usage,
          "--plugin \"" + text + "\": " + why + "; write NAME[:parameter=value,...]"};
}

std::pair<std::string, std::string> parse_setting(const std::string& text,
                                                  std::string_view setting) {
  const std::size_t equals = setting.find('=');
  if (setting.empty()) throw failure(text, "a parameter is missing behind \":\" or \",\"");
  if (equals == std::string_view::npos) {
    const bool is_number = setting.find_first_not_of("0123456789") == std::string_view::npos;
    throw failure(text, "\"" + std::string(setting) + "\" has no value" +
                            (is_number ? " (write decimals with a point: 2.5)"
                             : text.find(',') != std::string::npos
                                 ? " (a comma begins the next parameter; only a graph file takes "
                                   "values that contain one)"
                                 : ""));
  }
  if (equals == 0) throw failure(text, "a parameter's name is missing before \"=\"");
  if (equals + 1 == setting.size()) {
    throw failure(text, "the value of \"" + std::string(setting.substr(0, equals)) + "\" is empty");
  }
  return {std::string(setting.substr(0, equals)), std::string(setting.substr(equals + 1))};
}

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".so");
}

}  // namespace

PluginArgument parse_plugin_name(const std::string& name, const std::string& where) {
  PluginArgument argument;
  argument.text = name;
  const std::size_t hash = name.find('#');
  if (const std::string path = name.substr(0, hash); is_path(path)) {
    argument.library = path;
    if (hash == std::string::npos) return argument;
    argument.plugin = name.substr(hash + 1);
    if (argument.plugin.empty()) {
      throw Failure(ExitCode::usage, where + "the plug-in's name is missing behind \"#\"");
    }
    return argument;
  }
  if (name.empty()) throw Failure(ExitCode::usage, where + "the plug-in's name is missing");
  argument.plugin = name;
  return argument;
}

PluginArgument parse_plugin_argument(const std::string& text) {
  const std::size_t colon = text.find(':');
  PluginArgument argument = parse_plugin_name(text.substr(0, colon), "--plugin \"" + text + "\": ");
  argument.text = text;
  if (colon == std::string::npos) return argument;

  std::string_view rest = std::string_view(text).substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    auto setting = parse_setting(text, rest.substr(0, comma));
    const auto same = [&](const auto& other) { return other.first == setting.first; };
    if (std::any_of(argument.settings.begin(), argument.settings.end(), same)) {
      throw failure(text, "\"" + setting.first + "\" is set twice");
    }
    argument.settings.push_back(std::move(setting));
    if (comma == std::string_view::npos) return argument;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace ctxbroker::sample_host
