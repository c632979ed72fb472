// SPDX-License-Identifier: Apache-2.0
#include "probe_report.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "report.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

std::string words(ProbeOutcome outcome) {
  std::string text = to_string(outcome);
  std::replace(text.begin(), text.end(), '-', ' ');
  return text;
}

std::string value_text(const ProbeAnswer& answer) {
  if (answer.outcome != ProbeOutcome::measured) return words(answer.outcome);
  switch (answer.unit) {
    case ProbeUnit::yes_no:
      return answer.value != 0 ? "yes" : "no";
    case ProbeUnit::count:
      return format_number(answer.value);
    case ProbeUnit::milliseconds:
      return format_seconds(answer.value / 1000);
  }
  return "";
}

std::string heading(const ModelProbe& probe) {
  const ProbeReport& report = probe.report;
  std::string text = probe.devices.size() == 1 ? "probe of device " : "probe of devices ";
  for (std::size_t i = 0; i < probe.devices.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(probe.devices[i]);
  }
  text += ": " + report.gpu;
  if (!report.gpu_uuid.empty()) text += " (" + report.gpu_uuid + ")";
  text += ", " + describe(report.driver) + "\n";
  text += "measured " + report.measured;
  if (report.from_cache) text += ", kept in " + report.cache_file.string() + "; --again repeats it";
  return text + "\n";
}

}  // namespace

std::vector<ModelProbe> run_probes(const Options& options, const std::vector<DeviceInfo>& devices) {
  ProbeOptions request;
  request.program = std::filesystem::read_symlink("/proc/self/exe");
  request.arguments = {probe_command};
  request.driver = options.driver;
  request.again = options.again;
  std::vector<ModelProbe> probes;
  std::vector<const DeviceInfo*> measured;  // of each in probes
  for (const DeviceInfo& device : devices) {
    const auto same = std::find_if(measured.begin(), measured.end(), [&](const DeviceInfo* one) {
      return one->name == device.name && one->multiprocessors == device.multiprocessors;
    });
    if (same != measured.end()) {
      probes[static_cast<std::size_t>(same - measured.begin())].devices.push_back(device.ordinal);
      continue;
    }
    request.device = device.ordinal;
    probes.push_back({{device.ordinal}, probe(request)});
    measured.push_back(&device);
  }
  return probes;
}

std::string format_probe(const ModelProbe& probe) {
  const ProbeReport& report = probe.report;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> reasons;
  for (const ProbeAnswer& answer : report.answers) {
    rows.push_back({answer.title, value_text(answer), answer.reference});
    if (answer.reason.empty()) continue;
    const std::string reason = words(answer.outcome) + ": " + answer.reason;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(reason);
    }
  }
  std::string text = heading(probe);
  text += format_table({{"question"}, {"here"}, {"expected (H200, CUDA 13.0)"}}, rows);
  text +=
      "A time is that of one call while a kernel of 100 ms runs in another lease of that kind.\n";
  for (const std::string& reason : reasons) text += reason + "\n";
  for (const std::string& note : report.notes) text += note + "\n";
  return text;
}

nlohmann::ordered_json probe_to_json(const ModelProbe& probe) {
  auto json = nlohmann::ordered_json::parse(to_json(probe.report));
  json["devices"] = probe.devices;
  return json;
}

}  // namespace ctxbroker::sample_host
