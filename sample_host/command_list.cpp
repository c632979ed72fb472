// SPDX-License-Identifier: Apache-2.0
// sample_host list: the plug-ins of this machine and the states of their libraries; loads no driver
// and no library.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "catalogue.hpp"
#include "commands.hpp"
#include "listing.hpp"
#include "logging.hpp"
#include "report.hpp"

namespace ctxbroker::sample_host {

namespace {

void print_json(const ScanResult& found) {
  nlohmann::ordered_json json{{"schema", "ctxbroker.sample_host.plugins/1"}};
  for (const char* name : {"folders", "plugins", "libraries"}) {
    json[name] = nlohmann::ordered_json::array();
  }
  for (const auto& folder : found.folders) json["folders"].push_back(folder.string());
  for (const PluginDescription* plugin : found.plugins()) {
    json["plugins"].push_back(to_json(*plugin));
  }
  for (const ScannedLibrary& library : found.libraries) {
    json["libraries"].push_back(to_json(library));
  }
  json["missing_folders"] = nlohmann::ordered_json::array();
  for (const auto& folder : missing_folders(found)) {
    json["missing_folders"].push_back(folder.string());
  }
  json["problems"] = problems_to_json(found);
  json["warnings"] = warnings(found);
  std::fputs(dump(json).c_str(), stdout);
}

// Those that are in use need no words.
void print_states(const ScanResult& found) {
  for (const ScannedLibrary& library : found.libraries) {
    if (library.state == LibraryState::enabled) continue;
    std::printf("%s  %s\n  %s%s\n", to_string(library.state), library.path.c_str(),
                library.reason.c_str(), advice(library));
    if (library.strikes > 0) {
      std::printf("  strikes: %u\n", static_cast<unsigned>(library.strikes));
    }
  }
}

void print_text(const ScanResult& found) {
  const auto plugins = found.plugins();
  for (const PluginDescription* plugin : plugins) {
    std::printf("%s\n", format_plugin(*plugin).c_str());
  }
  print_states(found);
  if (!plugins.empty()) return;
  std::puts("No plug-ins found. Searched:");
  for (const auto& folder : found.folders) {
    std::error_code error;
    std::printf("  %s%s\n", folder.c_str(),
                std::filesystem::exists(folder, error) ? "" : " (does not exist)");
  }
  std::puts("Name a folder with plug-ins by --plugin-path or in CTXBROKER_PLUGIN_PATH.");
}

}  // namespace

ExitCode run_list(const Options& options) {
  const ScanResult found = scan_plugins(options);
  // The text itself has the state of each library.
  for (const std::string& text : options.json ? warnings(found) : general_warnings(found)) {
    log(Severity::warning, "plugin", text);
  }
  if (options.json) {
    print_json(found);
  } else {
    print_text(found);
  }
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
