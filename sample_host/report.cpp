// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <nlohmann/json.hpp>

#include "listing.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

using Json = nlohmann::ordered_json;

std::string describe(const FileFacts& file) {
  std::string size;
  if (file.width != 0) {
    size = ", " + std::to_string(file.width) + " x " + std::to_string(file.height);
  } else {
    size = ", " + std::to_string(file.frames) + (file.frames == 1 ? " frame" : " frames");
  }
  return (file.name.empty() ? "" : file.name + ": ") + file.path + " (" + file.format + size + ")";
}

std::string plugin_table(const Report& report) {
  std::vector<std::vector<std::string>> rows;
  Metrics total;
  for (const PluginRow& plugin : report.plugins) {
    const Metrics& m = plugin.metrics;
    rows.push_back({plugin.node.empty() ? plugin.short_name : plugin.node,
                    to_string(plugin.granted.kind), format_seconds(m.device_seconds),
                    std::to_string(m.launches), format_bytes(m.memory_peak_bytes)});
    total.device_seconds += m.device_seconds;
    total.launches += m.launches;
    total.memory_peak_bytes += m.memory_peak_bytes;
  }
  if (rows.size() > 1) {
    rows.push_back({"all", "", format_seconds(total.device_seconds), std::to_string(total.launches),
                    format_bytes(total.memory_peak_bytes)});
  }
  return format_table({{"plug-in"},
                       {"lease"},
                       {"time on device", Align::right},
                       {"launches", Align::right},
                       {"memory", Align::right}},
                      rows);
}

// Returns a table of the calls that held up plug-ins while blocks went through the graph. Empty: no
// call did.
std::string realtime_table(const BrokerMetrics& metrics) {
  std::vector<std::vector<std::string>> rows;
  for (const TenantMetrics& tenant : metrics.tenants) {
    for (const auto& [call, totals] : tenant.realtime) {
      rows.push_back({tenant.name, call, std::to_string(totals.count),
                      std::to_string(totals.refused), format_seconds(totals.seconds),
                      format_seconds(totals.longest_seconds)});
    }
  }
  if (rows.empty()) return {};
  return '\n' + format_table({{"tenant"},
                              {"held up its neighbours by"},
                              {"calls", Align::right},
                              {"refused", Align::right},
                              {"time", Align::right},
                              {"longest", Align::right}},
                             rows);
}

Json realtime_to_json(const BrokerMetrics& metrics) {
  Json list = Json::array();
  for (const TenantMetrics& tenant : metrics.tenants) {
    for (const auto& [call, totals] : tenant.realtime) {
      list.push_back({{"tenant", tenant.name},
                      {"call", call},
                      {"count", totals.count},
                      {"refused", totals.refused},
                      {"seconds", totals.seconds},
                      {"longest_seconds", totals.longest_seconds}});
    }
  }
  return list;
}

std::string describe(const PaceFacts& pace) {
  const auto time = [](double microseconds) { return format_seconds(microseconds * 1e-6); };
  return std::to_string(pace.missed_deadlines) + " of " + std::to_string(pace.blocks) + " missed" +
         (pace.missed_deadlines > 0 ? ", by " + time(pace.latest) + " at most" : "") +
         "; a block took " + time(pace.p50) + " (p50), " + time(pace.p99) + " (p99), " +
         time(pace.p999) + " (p99.9), " + time(pace.worst) + " at most";
}

Json to_json(const PaceFacts& pace) {
  return {{"blocks", pace.blocks},    {"missed_deadlines", pace.missed_deadlines},
          {"latest_us", pace.latest}, {"p50_us", pace.p50},
          {"p99_us", pace.p99},       {"p999_us", pace.p999},
          {"worst_us", pace.worst}};
}

Json to_json(const FileFacts& file) {
  Json json;
  if (!file.name.empty()) json["name"] = file.name;
  json["path"] = file.path;
  json["format"] = file.format;
  if (file.width != 0) {
    json["width"] = file.width;
    json["height"] = file.height;
  } else {
    json["frames"] = file.frames;
  }
  return json;
}

Json to_json(const PluginRow& plugin) {
  const Metrics& m = plugin.metrics;
  Json json;
  if (!plugin.node.empty()) json["node"] = plugin.node;
  json.update({{"id", plugin.id},
               {"short_name", plugin.short_name},
               {"version", plugin.version},
               {"library", plugin.library},
               {"parameters", plugin.parameters},
               {"lease",
                {{"asked", to_string(plugin.asked)},
                 {"granted", to_string(plugin.granted.kind)},
                 {"device", plugin.device},
                 {"multiprocessors", plugin.granted.multiprocessors},
                 {"reason", plugin.lease_reason}}},
               {"jobs", m.jobs},
               {"launches", m.launches},
               {"graph_jobs", m.graph_jobs},
               {"device_seconds", m.device_seconds},
               {"memory_bytes", m.memory_bytes},
               {"memory_peak_bytes", m.memory_peak_bytes},
               {"strikes", m.strikes}});
  return json;
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string describe(const DriverInfo& driver) {
  const char* name = driver.kind == DriverChoice::nvidia ? "NVIDIA driver" : "software device";
  return std::string(name) + ", CUDA " + version_text(driver.version);
}

std::string describe(const DeviceInfo& device) {
  return device.name + ", compute capability " + std::to_string(device.compute_major) + "." +
         std::to_string(device.compute_minor) + ", " + std::to_string(device.multiprocessors) +
         (device.multiprocessors == 1 ? " multiprocessor, " : " multiprocessors, ") +
         format_bytes(device.memory_bytes);
}

Json to_json(const DriverInfo& driver) {
  return {{"kind", to_string(driver.kind)},
          {"version", version_text(driver.version)},
          {"path", driver.path},
          {"reason", driver.reason}};
}

Json to_json(const DeviceInfo& device) {
  return {{"ordinal", device.ordinal},
          {"name", device.name},
          {"compute_capability",
           std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor)},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory_bytes},
          {"mps", device.mps},
          {"memory_pools", device.memory_pools},
          {"pinned_pools", device.pinned_pools}};
}

void describe_session(Session& session, Report& report) {
  Engine& engine = session.engine();
  report.driver = engine.driver();
  report.metrics = engine.all_metrics();
  report.devices = session.devices();
  report.leases = lease_rows(session);
  report.moved = session.moved_because();
  for (std::size_t i = 0; i < session.plan().nodes.size(); ++i) {
    const PluginDescription& plugin = engine.description(i);
    const LeaseInfo lease = engine.lease(i);
    PluginRow row;
    if (!session.plan().is_row()) row.node = session.plan().nodes[i].name;
    row.id = plugin.id;
    row.short_name = plugin.short_name;
    row.version = plugin.version;
    row.library = plugin.library_path;
    row.asked = lease.asked;
    row.device = lease.device;
    row.granted = lease.granted;
    row.lease_reason = lease.reason;
    row.metrics = engine.metrics(i);
    row.parameters = Json::object();
    for (const ParameterDescription& parameter : plugin.parameters) {
      row.parameters[parameter.id] = parameter.is_text()
                                         ? Json(engine.text(i, parameter.id))
                                         : value_to_json(engine.parameter_value(i, parameter.id));
    }
    report.plugins.push_back(std::move(row));
  }
}

double realtime_factor(const Report& report) {
  if (!report.audio || report.process_seconds <= 0) return 0;
  return static_cast<double>(report.outputs.front().frames) / report.audio->sample_rate /
         report.process_seconds;
}

std::string format_report(const Report& report, bool reasons) {
  std::string time = format_seconds(report.wall_seconds) + ", " +
                     format_seconds(report.process_seconds) + " of it in the plug-ins";
  if (report.audio) {
    const double factor = realtime_factor(report);
    time += factor >= 10 ? ", " + std::to_string(static_cast<std::uint64_t>(factor))
                         : ", " + format_number(static_cast<int>(factor * 10) / 10.0);
    time += " times real time";
  }
  std::vector<std::vector<std::string>> lines{
      {"driver", describe(report.driver) + " (" + report.driver.reason + ")"}};
  for (const DeviceInfo& device : report.devices) {
    lines.push_back({lines.size() == 1 ? "device" : "",
                     std::to_string(device.ordinal) + ": " + describe(device)});
  }
  const auto add_files = [&](const char* label, const std::vector<FileFacts>& files) {
    for (const FileFacts& file : files) {
      lines.push_back({&file == files.data() ? label : "", describe(file)});
    }
  };
  add_files("input", report.inputs);
  add_files("output", report.outputs);
  if (report.frames) {
    const FrameFacts& frames = *report.frames;
    lines.push_back({"frames", std::to_string(frames.range.first) + " to " +
                                   std::to_string(frames.range.last) + ": " +
                                   std::to_string(frames.written) + " written, " +
                                   std::to_string(frames.skipped) + " skipped"});
  }
  if (!report.moved.empty()) {
    lines.push_back({"moved", "to a process of their own, because " + report.moved});
  }
  lines.push_back({"time", time});
  if (report.audio && report.audio->pace) {
    lines.push_back({"deadlines", describe(*report.audio->pace)});
  }
  if (report.audio && report.audio->clips.clipped > 0) {
    lines.push_back({"clipped", std::to_string(report.audio->clips.clipped) + " samples"});
  }
  if (report.audio && report.audio->clips.not_a_number > 0) {
    lines.push_back(
        {"not a number", std::to_string(report.audio->clips.not_a_number) + " samples"});
  }
  return format_table({{}, {}}, lines) + '\n' + plugin_table(report) + '\n' +
         format_leases(report.leases, reasons) + realtime_table(report.metrics);
}

Json report_to_json(const Report& report) {
  Json json{{"schema", "ctxbroker.sample_host.report/1"},
            {"command", report.command},
            {"success", true},
            {"exit_code", 0},
            {"driver", to_json(report.driver)},
            {"device", to_json(report.devices.front())},
            {"devices", Json::array()},
            {"input", report.inputs.empty() ? Json() : to_json(report.inputs.front())},
            {"output", to_json(report.outputs.front())},
            {"inputs", Json::array()},
            {"outputs", Json::array()}};
  for (const FileFacts& file : report.inputs) json["inputs"].push_back(to_json(file));
  for (const FileFacts& file : report.outputs) json["outputs"].push_back(to_json(file));
  for (const DeviceInfo& device : report.devices) json["devices"].push_back(to_json(device));
  if (report.audio) {
    const AudioFacts& audio = *report.audio;
    json["audio"] = {{"channels", audio.channels},
                     {"sample_rate", audio.sample_rate},
                     {"block_frames", audio.block_frames},
                     {"latency_frames", audio.latency_frames},
                     {"clipped_samples", audio.clips.clipped},
                     {"not_a_number_samples", audio.clips.not_a_number},
                     {"realtime_factor", realtime_factor(report)},
                     {"realtime_calls", realtime_to_json(report.metrics)}};
    if (audio.pace) json["audio"]["pace"] = to_json(*audio.pace);
  }
  if (report.frames) {
    json["frames"] = {{"first", report.frames->range.first},
                      {"last", report.frames->range.last},
                      {"written", report.frames->written},
                      {"skipped", report.frames->skipped}};
  }
  if (!report.moved.empty()) json["moved_because"] = report.moved;
  json["jobs_in_flight"] = report.jobs_in_flight;
  json["wall_seconds"] = report.wall_seconds;
  json["process_seconds"] = report.process_seconds;
  json["plugins"] = Json::array();
  for (const PluginRow& plugin : report.plugins) json["plugins"].push_back(to_json(plugin));
  json["metrics"] = Json::parse(to_json(report.metrics));
  json["leases"] = Json::array();
  for (const LeaseRow& lease : report.leases) json["leases"].push_back(to_json(lease));
  return json;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace ctxbroker::sample_host
