// SPDX-License-Identifier: Apache-2.0
// sample_host list: the plug-ins of this machine; loads no driver.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "ctxbroker/version.hpp"
#include "listing.hpp"
#include "logging.hpp"
#include "report.hpp"

namespace ctxbroker::sample_host {

namespace {

void print_json(const Catalogue& catalogue) {
  nlohmann::ordered_json json{{"schema", "ctxbroker.sample_host.plugins/1"}};
  json["folders"] = nlohmann::ordered_json::array();
  json["plugins"] = nlohmann::ordered_json::array();
  json["problems"] = nlohmann::ordered_json::array();
  for (const auto& folder : catalogue.folders()) json["folders"].push_back(folder.string());
  for (const PluginDescription* plugin : catalogue.plugins()) {
    json["plugins"].push_back(to_json(*plugin));
  }
  for (const Problem& problem : catalogue.problems()) json["problems"].push_back(to_json(problem));
  std::fputs(dump(json).c_str(), stdout);
}

void print_text(const Catalogue& catalogue) {
  const auto plugins = catalogue.plugins();
  for (const PluginDescription* plugin : plugins) {
    std::printf("%s\n", format_plugin(*plugin).c_str());
  }
  if (!plugins.empty()) return;
  std::puts("No plug-ins found. Searched:");
  for (const auto& folder : catalogue.folders()) std::printf("  %s\n", folder.c_str());
  std::puts("Name a folder with plug-ins by --plugin-path or in CTXBROKER_PLUGIN_PATH.");
}

}  // namespace

ExitCode run_list(const Options& options) {
  BrokerOptions broker_options;
  broker_options.host_name = "sample_host";
  broker_options.host_version = version();
  broker_options.records = record_sink();
  Broker broker = Broker::open_without_driver(std::move(broker_options));
  const Catalogue catalogue(broker, plugin_folders(options.plugin_path));
  for (const Problem& problem : catalogue.problems()) {
    log(Severity::warning, "plugin", problem.library.string() + ": " + problem.text);
  }
  for (const std::string& text : catalogue.passed_over()) log(Severity::warning, "plugin", text);
  if (options.json) {
    print_json(catalogue);
  } else {
    print_text(catalogue);
  }
  return ExitCode::ok;
}

}  // namespace ctxbroker::sample_host
