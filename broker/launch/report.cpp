// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ctxbroker/version.hpp"
#include "observe/whole_file.hpp"

namespace ctxbroker::launch {
namespace {

using Json = nlohmann::ordered_json;

Json in_json(const DriverInfo& driver) {
  return {{"kind", to_string(driver.kind)},
          {"path", driver.path},
          {"version", driver.version},
          {"reason", driver.reason}};
}

Json in_json(const GateInfo& gate) {
  Json unknown = Json::array();
  for (const UnknownFunction& one : gate.unknown_functions) {
    if (one.look_ups > 0) unknown.push_back({{"name", one.name}, {"look_ups", one.look_ups}});
  }
  return {{"mode", to_string(gate.mode)},
          {"reason", gate.reason},
          {"tools", gate.tools},
          {"unknown_functions", unknown}};
}

Json in_json(const DeviceInfo& device, const ShieldInfo& shield) {
  return {{"device", device.ordinal},
          {"name", device.name},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory_bytes},
          {"mps", device.mps},
          {"in_use", shield.in_use},
          {"shield", shield.up},
          {"why_no_shield", shield.in_use ? shield.reason : ""}};
}

Json in_json(const LeaseInfo& lease) {
  return {{"tenant", lease.tenant_name},     {"device", lease.device},
          {"asked", to_string(lease.asked)}, {"granted", to_string(lease.granted)},
          {"reason", lease.reason},          {"state", to_string(lease.state)},
          {"generation", lease.generation}};
}

Json in_json(const Note& note) {
  return {{"severity", to_string(note.severity)},
          {"topic", note.topic},
          {"tenant", note.tenant},
          {"text", note.text}};
}

Json devices_in_json(const RunFacts& facts) {
  Json devices = Json::array();
  for (std::size_t i = 0; i < facts.devices.size() && i < facts.shields.size(); ++i) {
    devices.push_back(in_json(facts.devices[i], facts.shields[i]));
  }
  return devices;
}

template <typename Items>
Json array_of(const Items& items) {
  Json array = Json::array();
  for (const auto& one : items) array.push_back(in_json(one));
  return array;
}

// The members of the metrics' own text, whose schema is another one.
void add_metrics(Json& json, const RunFacts& facts) {
  const BrokerMetrics none;
  const Json metrics = Json::parse(to_json(facts.metrics ? *facts.metrics : none));
  for (const auto& [name, value] : metrics.items()) {
    if (name != "schema") json[name] = value;
  }
}

// The programs that the program starts need not have all of its libraries. One in which no pattern
// matches at all tells of them: the first process may be a wrapper that never calls the driver.
bool tells_of_patterns(const RunFacts& facts) {
  if (!facts.metrics) return false;
  const BrokerMetrics& metrics = *facts.metrics;
  return facts.is_first || (metrics.libraries.empty() && metrics.late_patterns.empty());
}

const std::vector<std::string>& unmatched(const RunFacts& facts) {
  static const std::vector<std::string> none;
  return tells_of_patterns(facts) ? facts.metrics->unmatched_patterns : none;
}

// The patterns whose libraries went to another tenant than the user may think. Those that --each
// would have found are meant to go to the tenants that the user names.
std::vector<LatePattern> misleading(const RunFacts& facts) {
  if (!tells_of_patterns(facts)) return {};
  std::vector<LatePattern> patterns = facts.metrics->late_patterns;
  std::erase_if(patterns, [](const LatePattern& one) {
    return one.tenant_name == "*" || one.tenant_name == one.taken_for;
  });
  return patterns;
}

std::string times(std::uint64_t count) {
  return count == 1 ? "once" : std::to_string(count) + " times";
}

void add_line(std::string& text, const std::string& line) {
  text += (text.empty() ? "" : "\n") + line;
}

const char* words_for(LeaseState state) {
  switch (state) {
    case LeaseState::ready:
      break;
    case LeaseState::lost:
      return "its context was lost";
    case LeaseState::ended:
      return "CUDA has ended in the process";
    case LeaseState::hung:
      return "its work on the device hung";
  }
  return "it works";
}

// The tenant has used up a budget or a limit, and the driver was not called for more. There is one
// such record for each limit of a tenant.
bool is_limit(const Note& note) {
  return note.topic == "limit";
}

// The first strike that a record tells of.
std::string first_strike(const RunFacts& facts, const std::string& tenant) {
  for (const Note& note : facts.notes) {
    if (note.topic == "strike" && note.tenant == tenant) return note.text;
  }
  return {};
}

void add_tenant(std::string& text, const RunFacts& facts, const TenantMetrics& tenant, bool all) {
  if (tenant.strikes > 0) {
    const std::string first = first_strike(facts, tenant.name);
    add_line(text, tenant.name + " broke the rules " + times(tenant.strikes) +
                       (first.empty() ? "" : ". The first: " + first));
  }
  for (const LeaseMetrics& lease : tenant.leases) {
    if (lease.state == LeaseState::ready && !all) continue;
    add_line(text, tenant.name + " on device " + std::to_string(lease.device) + ", " +
                       to_string(lease.granted) + " lease: " + words_for(lease.state));
  }
  if (!all || tenant.guarded_calls.empty()) return;
  std::uint64_t calls = 0, resets = 0;
  for (const auto& [function, count] : tenant.guarded_calls) {
    calls += count;
    if (function.rfind("cuDevicePrimaryCtxReset", 0) == 0) resets += count;
  }
  add_line(text, tenant.name + " made " + std::to_string(calls) + " guarded calls" +
                     (resets > 0 ? ", with " + std::to_string(resets) +
                                       (resets == 1 ? " reset" : " resets") +
                                       " that changed nothing for the others"
                                 : ""));
}

}  // namespace

std::string path_for(const std::string& path, const Settings& settings, int pid) {
  if (path.empty() || pid == settings.pid) return path;
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.rfind('.');
  const bool has_extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash + 1);
  const std::size_t at = has_extension ? dot : path.size();
  return path.substr(0, at) + "." + std::to_string(pid) + path.substr(at);
}

std::string report_text(const Settings& settings, const RunFacts& facts) {
  Json json{{"schema", "ctxbroker.run/1"},
            {"version", version()},
            {"command", settings.command},
            {"pid", facts.pid},
            {"first_pid", settings.pid},
            {"driver_called", facts.driver_called},
            {"finished", facts.finished},
            {"error", facts.error},
            {"driver", facts.driver ? in_json(*facts.driver) : Json()},
            {"gate", facts.gate ? in_json(*facts.gate) : Json()},
            {"devices", devices_in_json(facts)},
            {"leases", array_of(facts.leases)}};
  add_metrics(json, facts);
  json["records"] = array_of(facts.notes);
  json["records_left_out"] = facts.notes_left_out;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_before_driver(const Settings& settings) {
  RunFacts facts;
  facts.pid = settings.pid;
  return report_text(settings, facts);
}

void write_report(const std::string& path, const std::string& text) {
  detail::write_whole_file(path, [&](const auto& sink) { sink(text); });
}

namespace {

// Strikes are told with the tenant.
bool is_error(const Note& note) {
  return note.severity == Severity::error && note.topic != "strike";
}

// Null: there is none.
const Note* first_error(const RunFacts& facts) {
  const auto found = std::find_if(facts.notes.begin(), facts.notes.end(), is_error);
  return found != facts.notes.end() ? &*found : nullptr;
}

// Returns whether the driver refuses nothing on a device that is in use.
bool is_bare(const ShieldInfo& shield) {
  return shield.in_use && !shield.up;
}

}  // namespace

bool has_news(const RunFacts& facts) {
  if (!facts.error.empty() || first_error(facts) != nullptr) return true;
  if (std::any_of(facts.notes.begin(), facts.notes.end(), is_limit)) return true;
  if (!facts.metrics) return facts.driver_called;
  const BrokerMetrics& metrics = *facts.metrics;
  return std::any_of(facts.shields.begin(), facts.shields.end(), is_bare) ||
         !metrics.refused.empty() || !metrics.put_off.empty() || !unmatched(facts).empty() ||
         !misleading(facts).empty() ||
         std::any_of(metrics.tenants.begin(), metrics.tenants.end(), [](const auto& tenant) {
           return tenant.strikes > 0 ||
                  std::any_of(tenant.leases.begin(), tenant.leases.end(),
                              [](const auto& lease) { return lease.state != LeaseState::ready; });
         });
}

std::string summary_text(const RunFacts& facts, bool all) {
  std::string text;
  if (!facts.error.empty()) add_line(text, facts.error);
  if (all && facts.driver) {
    add_line(text, std::string(to_string(facts.driver->kind)) + " driver " + facts.driver->path +
                       ", CUDA " + std::to_string(facts.driver->version / 1000) + "." +
                       std::to_string(facts.driver->version % 1000 / 10));
  }
  if (!facts.metrics) {
    if (facts.driver)
      add_line(text, "the broker did not respond in time, so its figures are missing");
    return text;
  }
  for (std::size_t i = 0; i < facts.devices.size() && i < facts.shields.size(); ++i) {
    if (!is_bare(facts.shields[i])) continue;
    add_line(text,
             "device " + std::to_string(facts.devices[i].ordinal) +
                 " has no shield, so the driver refuses nothing there: " + facts.shields[i].reason);
  }
  for (const RefusedCalls& one : facts.metrics->refused) {
    add_line(text, "the driver refused " + one.function + " on device " +
                       std::to_string(one.device) + " " + times(one.count) + ", from " +
                       one.library);
  }
  for (const TenantMetrics& tenant : facts.metrics->tenants) add_tenant(text, facts, tenant, all);
  for (const Note& note : facts.notes) {
    if (is_limit(note)) add_line(text, note.tenant + " reached " + note.text);
  }
  if (const Note* const error = first_error(facts)) {
    const auto count = std::count_if(facts.notes.begin(), facts.notes.end(), is_error);
    add_line(text, "the broker recorded " + std::to_string(count) +
                       (count == 1 ? " error: " : " errors. The first: ") + error->tenant + ": " +
                       error->text);
  }
  for (const PutOffMetrics& one : facts.metrics->put_off) {
    add_line(text, one.tenant_name + " left " + std::to_string(one.count) + " " + one.what +
                       " on device " + std::to_string(one.device) +
                       " that hung work still used at exit");
  }
  for (const std::string& pattern : unmatched(facts)) {
    add_line(text, pattern == "*" ? "no package brings CUDA code of its own, so none became a "
                                    "tenant"
                                  : "the pattern " + pattern + " has matched no library");
  }
  for (const LatePattern& one : misleading(facts)) {
    add_line(text, "the pattern " + one.pattern + " gave " + one.tenant_name +
                       " no library: the earlier pattern " + one.taken_by +
                       " gives what it matches to " +
                       (one.taken_for == "*" ? "packages" : one.taken_for));
  }
  if (all && !has_news(facts)) {
    add_line(text, "nothing was refused or lost");
  }
  return text;
}

}  // namespace ctxbroker::launch
