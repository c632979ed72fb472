// sample_host doctor: what works on this machine, what protects it, what is missing.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "ctxbroker/version.hpp"
#include "listing.hpp"
#include "logging.hpp"
#include "probe_report.hpp"
#include "report.hpp"
#include "suggestion.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

struct Protection {
  const char* name;
  bool built;
  const char* text;
};

// What stands between plug-ins and the process, in the words of the documents.
constexpr Protection protections[] = {
    {"guards", true,
     "every call into a plug-in is surrounded; the context stack is restored afterwards"},
    {"leases", true, "shared or private context per plug-in library, by --lease"},
    {"ledger", true, "device memory that a plug-in forgets is given back"},
    {"gate", false, "not built into this version: driver calls of a plug-in's own are not checked"},
    {"shield", false,
     "not built into this version: a plug-in that resets the device ends its neighbours' work"},
};

struct Findings {
  std::optional<DriverInfo> driver;
  std::vector<DeviceInfo> devices;
  std::string driver_error;  // empty when the driver is usable
  std::vector<std::filesystem::path> folders;
  std::vector<std::string> plugins;  // short names
  std::vector<Problem> problems;
  std::vector<std::string> advice;
  std::optional<ProbeReport> probe;
};

BrokerOptions broker_options(const Options& options) {
  BrokerOptions result;
  result.host_name = "sample_host";
  result.host_version = version();
  result.driver = options.driver;
  result.records = record_sink();
  return result;
}

void look_at_driver(const Options& options, Findings& findings) {
  try {
    Broker broker = Broker::open(broker_options(options));
    findings.driver = broker.driver();
    findings.devices = broker.devices();
  } catch (const Error& error) {
    findings.driver_error = error.what();
    findings.advice.emplace_back(
        "no usable driver: unset CTXBROKER_DRIVER or use --driver software, which needs no GPU; "
        "for a GPU install NVIDIA's driver from your distribution");
    return;
  }
  if (findings.driver->kind == DriverChoice::software) {
    findings.advice.emplace_back(
        "no GPU is used: the software device runs the kernels on the CPU, slower than a GPU; with "
        "a GPU, install NVIDIA's driver and use --driver auto");
  }
}

void look_at_plugins(const Options& options, Findings& findings) {
  Broker broker = Broker::open_without_driver(broker_options(options));
  const Catalogue catalogue(broker, plugin_folders(options.plugin_path));
  findings.folders = catalogue.folders();
  findings.problems = catalogue.problems();
  for (const PluginDescription* plugin : catalogue.plugins()) {
    findings.plugins.push_back(plugin->short_name);
  }
  if (findings.plugins.empty()) {
    findings.advice.emplace_back(
        "no plug-in was found: build the sample plug-ins, or name a folder with --plugin-path or "
        "in CTXBROKER_PLUGIN_PATH");
  }
}

void print_text(const Findings& findings) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* title, const std::string& text) {
    const bool same = !rows.empty() && std::string(title).empty();
    rows.push_back({same ? "" : title, text});
  };
  if (findings.driver) {
    add("driver", describe(*findings.driver));
    add("", "why: " + findings.driver->reason);
    add("", "file: " + findings.driver->path);
  } else {
    add("driver", "NOT USABLE: " + findings.driver_error);
  }
  for (std::size_t i = 0; i < findings.devices.size(); ++i) {
    const DeviceInfo& device = findings.devices[i];
    add(i == 0 ? "devices" : "", std::to_string(device.ordinal) + ": " + describe(device));
  }
  bool first = true;
  for (const Protection& protection : protections) {
    add(first ? "protection" : "", std::string(protection.name) + ": " + protection.text);
    first = false;
  }
  add("plug-ins", findings.plugins.empty() ? "none" : join(findings.plugins));
  for (const auto& folder : findings.folders) add("", "searched: " + folder.string());
  for (std::size_t i = 0; i < findings.problems.size(); ++i) {
    const Problem& problem = findings.problems[i];
    add(i == 0 ? "problems" : "", problem.library.string() + ": " + problem.text);
  }
  for (std::size_t i = 0; i < findings.advice.size(); ++i) {
    add(i == 0 ? "missing" : "", findings.advice[i]);
  }
  std::fputs(format_table({{}, {}}, rows).c_str(), stdout);
  if (findings.probe) std::fputs(("\n" + format_probe(*findings.probe)).c_str(), stdout);
}

void print_json(const Findings& findings) {
  using Json = nlohmann::ordered_json;
  Json json{{"schema", "ctxbroker.sample_host.doctor/1"}, {"usable", findings.driver.has_value()}};
  json["driver"] = findings.driver ? to_json(*findings.driver) : Json();
  json["driver_error"] = findings.driver_error.empty() ? Json() : Json(findings.driver_error);
  json["devices"] = Json::array();
  for (const DeviceInfo& device : findings.devices) json["devices"].push_back(to_json(device));
  json["protection"] = Json::array();
  for (const Protection& protection : protections) {
    json["protection"].push_back(
        {{"name", protection.name}, {"built", protection.built}, {"text", protection.text}});
  }
  json["plugins"] = findings.plugins;
  json["folders"] = Json::array();
  for (const auto& folder : findings.folders) json["folders"].push_back(folder.string());
  json["problems"] = Json::array();
  for (const Problem& problem : findings.problems) json["problems"].push_back(to_json(problem));
  json["missing"] = findings.advice;
  if (findings.probe) json["probe"] = probe_to_json(*findings.probe);
  std::fputs(dump(json).c_str(), stdout);
}

}  // namespace

ExitCode run_doctor(const Options& options) {
  Findings findings;
  look_at_driver(options, findings);
  look_at_plugins(options, findings);
  if (options.probe && findings.driver) findings.probe = run_probes(options);
  if (options.json) {
    print_json(findings);
  } else {
    print_text(findings);
  }
  return findings.driver ? ExitCode::ok : ExitCode::driver;
}

}  // namespace ctxbroker::sample_host
