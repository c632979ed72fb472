// SPDX-License-Identifier: Apache-2.0
// What a person writes behind --plugin.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ctxbroker::sample_host {

// NAME[:parameter=value[,parameter=value]...]. NAME is a plug-in's id ("org.example.blur"), its
// short name ("blur"), or a library's path with a '/' in it or ".so" at its end; where the library
// holds several plug-ins, "#short_name" follows the path.
struct PluginArgument {
  std::string text;               // as written
  std::filesystem::path library;  // empty when plug-ins are searched by name
  std::string plugin;             // id or short name; empty: the library's only one
  std::vector<std::pair<std::string, std::string>> settings;  // parameter and value, in order
};

// The first part alone: no settings. Throws Failure (usage) that begins with `where` and says what
// is wrong with the name.
PluginArgument parse_plugin_name(const std::string& name, const std::string& where);

// Throws Failure (usage) that quotes the text and says what is wrong with it.
PluginArgument parse_plugin_argument(const std::string& text);

}  // namespace ctxbroker::sample_host
