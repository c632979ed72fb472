// SPDX-License-Identifier: Apache-2.0
// sample_host doctor: what works on this machine, what protects it, what is missing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "catalogue.hpp"
#include "commands.hpp"
#include "ctxbroker/version.hpp"
#include "driver_check.hpp"
#include "listing.hpp"
#include "logging.hpp"
#include "probe_report.hpp"
#include "report.hpp"
#include "suggestion.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

using Json = nlohmann::ordered_json;

struct Protection {
  const char* name;
  bool built;
  const char* text;
};

// What stands between plug-ins and the process, in the words of the documents; the shield is tried.
constexpr Protection protections[] = {
    {"guards", true,
     "a guard surrounds every call into a plug-in and restores the thread's contexts after it"},
    {"leases", true,
     "each plug-in library gets a shared, private or green context on each device; see --lease and "
     "--policy"},
    {"ledger", true, "the broker frees what a plug-in forgets to free"},
};

struct DeviceShield {
  int device = 0;
  bool up = false;
  std::string text;
};

// NOLINTNEXTLINE(bugprone-exception-escape): moving JSON throws nothing
struct Findings {
  std::optional<DriverInfo> driver;
  std::vector<DeviceInfo> devices;
  GateInfo gate;
  std::vector<DeviceShield> shields;
  std::string driver_error;  // empty when the driver is usable
  std::vector<std::filesystem::path> folders, missing_folders;
  std::vector<std::string> plugins;  // short names
  std::vector<std::string> warnings;
  Json problems;
  std::vector<std::string> advice;
  std::vector<ModelProbe> probes;  // only when asked for
};

BrokerOptions broker_options(const Options& options) {
  BrokerOptions result;
  result.host_name = "sample_host";
  result.host_version = version();
  result.driver = options.driver;
  result.records = record_sink();
  return result;
}

// Returns whether the driver has memory pools, and what that means for plug-ins.
std::string device_memory_text(const DeviceInfo& device) {
  if (device.memory_pools) {
    return "the driver has memory pools: a plug-in with \"memory\": \"pool\" in the policy frees "
           "device memory without waiting for its neighbours' work";
  }
  return "the driver has NO MEMORY POOLS: a plug-in that frees device memory waits until the work "
         "of its neighbours has ended, unless its lease is private";
}

// The same for pinned memory.
std::string memory_text(const DeviceInfo& device) {
  return device_memory_text(device) +
         (device.pinned_pools ? ". Its pinned memory comes from a pool, too"
                              : ". It has NO POOLS OF PINNED MEMORY: a plug-in that allocates or "
                                "frees pinned memory holds up all its neighbours");
}

// Uses the device, which raises the shield where it can be had.
DeviceShield try_shield(Broker& broker, int device) {
  DeviceShield result{device, false, {}};
  try {
    broker.use_device(device);
    const ShieldInfo shield = broker.shield(device);
    result.up = shield.up;
    result.text = shield.up ? "up: no plug-in can destroy the primary context by a reset"
                            : "NOT UP (" + shield.reason +
                                  "): a plug-in that resets the device ends its neighbours' work";
  } catch (const Error& error) {
    result.text = std::string("NOT TRIED, the device cannot be used: ") + error.what();
  }
  return result;
}

// Long enough for many GPUs that nothing has used before.
constexpr std::chrono::seconds driver_deadline{30};

std::string why_not_to_open_driver(const Options& options) {
  std::vector<std::string> arguments{driver_check_command};
  if (options.driver) arguments.emplace_back(to_string(*options.driver));
  try {
    return check_driver(std::filesystem::read_symlink("/proc/self/exe"), arguments,
                        driver_deadline);
  } catch (const std::system_error&) {
    return {};  // no process can be started: the driver is tried here
  }
}

void look_at_driver(const Options& options, Findings& findings) {
  findings.driver_error = why_not_to_open_driver(options);
  if (!findings.driver_error.empty()) {
    findings.advice.emplace_back(
        "no usable driver: until it answers, use --driver software, which needs no GPU");
    return;
  }
  try {
    Broker broker = Broker::open(broker_options(options));
    findings.driver = broker.driver();
    findings.devices = broker.devices();
    findings.gate = broker.gate();
    for (const DeviceInfo& device : findings.devices) {
      findings.shields.push_back(try_shield(broker, device.ordinal));
      if (!device.mps) continue;
      findings.advice.push_back(
          "isolation from other processes on device " + std::to_string(device.ordinal) +
          ": this process uses it through an MPS server, and a fault of one of the server's "
          "clients ends CUDA in all of them; to stay outside, set "
          "CUDA_MPS_PIPE_DIRECTORY=/dev/null, "
          "as --isolate does for plug-ins");
    }
  } catch (const Error& error) {
    findings.driver_error = error.what();
    findings.advice.emplace_back(
        "no usable driver: use --driver software, which needs no GPU; for a GPU, install NVIDIA's "
        "driver from your distribution, and use --driver nvidia");
    return;
  }
  if (findings.driver->kind == DriverChoice::software) {
    findings.advice.emplace_back(
        "no GPU is used: the software device runs the kernels on the CPU, more slowly than a GPU; "
        "if there is a GPU, install NVIDIA's driver and use --driver auto");
  }
}

void look_at_plugins(const Options& options, Findings& findings) {
  const ScanResult found = scan_plugins(options);
  findings.folders = found.folders;
  findings.missing_folders = missing_folders(found);
  findings.warnings = warnings(found);
  findings.problems = problems_to_json(found);
  for (const PluginDescription* plugin : found.plugins()) {
    findings.plugins.push_back(plugin->short_name);
  }
  if (findings.plugins.empty()) {
    findings.advice.emplace_back(
        "no plug-in was found: build the sample plug-ins, or name a folder with --plugin-path or "
        "in CTXBROKER_PLUGIN_PATH");
  }
}

// How old the gate is beside the driver.
std::string gate_age(const Findings& findings) {
  const int gate = findings.gate.cuda_version, driver = findings.driver->version;
  std::string text = "knows the functions of CUDA " + version_text(gate) +
                     "; the driver is of CUDA " + version_text(driver);
  const auto& unknown = findings.gate.unknown_functions;
  if (driver <= gate && unknown.empty()) return text;
  if (driver > gate) text += ", so the gate is OLDER THAN THE DRIVER";
  text += ". Calls of functions that it does not know are not held back";
  if (unknown.empty()) return text;
  std::vector<std::string> names;
  names.reserve(unknown.size());
  for (const UnknownFunction& one : unknown) names.push_back(one.name);
  return text + ": " + join(names);
}

std::string gate_text(const Findings& findings) {
  if (!findings.driver) return "not tried without a driver";
  if (findings.gate.mode == GateMode::late) return "in force, but LATE: " + findings.gate.reason;
  if (findings.gate.in_force) {
    return "in force (" + findings.gate.reason +
           "): a plug-in's own driver calls work in its own lease, and free or destroy only what "
           "the plug-in made";
  }
  return "NOT IN FORCE (" + findings.gate.reason +
         "): only the guards and the shield protect against a plug-in's own driver calls";
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
  add("", "gate: " + gate_text(findings));
  if (findings.gate.in_force) add("", "gate: " + gate_age(findings));
  for (const std::string& tool : findings.gate.tools) add("", "tool: " + tool);
  for (const DeviceShield& shield : findings.shields) {
    add("", "shield: device " + std::to_string(shield.device) + " " + shield.text);
  }
  if (findings.shields.empty()) add("", "shield: not tried without a driver");
  for (const DeviceInfo& device : findings.devices) {
    add("", "memory: device " + std::to_string(device.ordinal) + ": " + memory_text(device));
  }
  add("plug-ins", findings.plugins.empty() ? "none" : join(findings.plugins));
  for (const auto& folder : findings.folders) {
    const auto& missing = findings.missing_folders;
    const bool is_there = std::find(missing.begin(), missing.end(), folder) == missing.end();
    add("", "searched: " + folder.string() + (is_there ? "" : " (does not exist)"));
  }
  for (std::size_t i = 0; i < findings.warnings.size(); ++i) {
    add(i == 0 ? "problems" : "", findings.warnings[i]);
  }
  for (std::size_t i = 0; i < findings.advice.size(); ++i) {
    add(i == 0 ? "missing" : "", findings.advice[i]);
  }
  std::fputs(format_table({{}, {}}, rows).c_str(), stdout);
  for (const ModelProbe& probe : findings.probes) {
    std::fputs(("\n" + format_probe(probe)).c_str(), stdout);
  }
}

void print_json(const Findings& findings) {
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
  json["protection"].push_back({{"name", "gate"},
                                {"built", true},
                                {"in_force", findings.gate.in_force},
                                {"mode", to_string(findings.gate.mode)},
                                {"text", gate_text(findings)},
                                {"tools", findings.gate.tools}});
  Json& gate = json["protection"].back();
  if (findings.gate.in_force) gate["cuda"] = version_text(findings.gate.cuda_version);
  gate["unknown_functions"] = Json::array();
  for (const UnknownFunction& one : findings.gate.unknown_functions) {
    gate["unknown_functions"].push_back(one.name);
  }
  Json shield{{"name", "shield"},
              {"built", true},
              {"text", "the driver refuses to reset the device"},
              {"devices", Json::array()}};
  for (const DeviceShield& one : findings.shields) {
    shield["devices"].push_back({{"device", one.device}, {"up", one.up}, {"text", one.text}});
  }
  json["protection"].push_back(shield);
  Json memory{{"name", "memory"},
              {"built", true},
              {"text", "a tenant can have device memory from a pool of its own"},
              {"devices", Json::array()}};
  for (const DeviceInfo& one : findings.devices) {
    memory["devices"].push_back({{"device", one.ordinal},
                                 {"pools", one.memory_pools},
                                 {"pinned_pools", one.pinned_pools},
                                 {"text", memory_text(one)}});
  }
  json["protection"].push_back(memory);
  json["plugins"] = findings.plugins;
  json["folders"] = Json::array();
  for (const auto& folder : findings.folders) json["folders"].push_back(folder.string());
  json["missing_folders"] = Json::array();
  for (const auto& folder : findings.missing_folders) {
    json["missing_folders"].push_back(folder.string());
  }
  json["problems"] = findings.problems;
  json["warnings"] = findings.warnings;
  json["missing"] = findings.advice;
  for (const ModelProbe& probe : findings.probes) json["probes"].push_back(probe_to_json(probe));
  std::fputs(dump(json).c_str(), stdout);
}

}  // namespace

ExitCode run_doctor(const Options& options) {
  Findings findings;
  look_at_driver(options, findings);
  look_at_plugins(options, findings);
  if (options.probe && findings.driver) {
    findings.probes = run_probes(options, findings.devices);
  }
  if (options.json) {
    print_json(findings);
  } else {
    print_text(findings);
  }
  return findings.driver ? ExitCode::ok : ExitCode::driver;
}

}  // namespace ctxbroker::sample_host
