// SPDX-License-Identifier: Apache-2.0
#include "worker/graph_wire.hpp"

#include <algorithm>

#include "ctxbroker/error.hpp"
#include "plugin/foreign_text.hpp"

namespace ctxbroker::detail {
namespace {

template <typename Value>
Value enumerator(const Json& json, Value most) {
  const auto number = json::whole_number(json, static_cast<std::uint64_t>(most));
  if (!number) throw json::DocumentError("a number stands for no value: " + json.dump());
  return static_cast<Value>(*number);
}

template <typename Element>
Json array_of(const std::vector<Element>& elements) {
  Json array = Json::array();
  for (const Element& element : elements) array.push_back(to_json(element));
  return array;
}

}  // namespace

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const Error& error) {
  const Error::Origin& origin = error.origin();
  return {{"kind", static_cast<int>(error.kind())},
          {"message", error.message()},
          {"call", origin.call},
          {"status", origin.status},
          {"status_name", origin.status_name},
          {"device", origin.device},
          {"tenant", origin.tenant}};
}

Error read_error(const Json& json) {
  Error::Origin origin;
  constexpr std::size_t longest = std::size_t{2} << 20;  // a JIT log has up to 1 MiB
  const auto text = [&](const char* member) {
    return take_message(json.at(member).get_ref<const std::string&>().c_str(), longest);
  };
  origin.call = text("call");
  origin.status = whole<int>(json.at("status"));
  origin.status_name = text("status_name");
  origin.device = whole<int>(json.at("device"));
  origin.tenant = text("tenant");
  const auto kind = enumerator(json.at("kind"), ErrorKind::over_limit);
  if (kind == ErrorKind::context_lost) {
    throw json::DocumentError("a process whose context is lost ends, and this one goes on");
  }
  return {kind, text("message"), origin};
}

bool any_on_device(const std::vector<GraphPort>& ports) noexcept {
  return std::any_of(ports.begin(), ports.end(),
                     [](const GraphPort& port) { return port.on_device; });
}

Json to_json(const std::vector<GraphPort>& ports) {
  Json array = Json::array();
  for (const GraphPort& port : ports) {
    array.push_back({{"name", port.name},
                     {"channels", port.channels},
                     {"samples", static_cast<std::uint32_t>(port.samples)},
                     {"on_device", port.on_device}});
  }
  return array;
}

std::vector<GraphPort> read_ports(const Json& json) {
  std::vector<GraphPort> ports;
  for (const Json& one : json) {
    GraphPort port;
    port.name = one.at("name").get<std::string>();
    port.channels = whole<std::uint32_t>(one.at("channels"));
    port.samples = enumerator(one.at("samples"), SampleType::float16);
    port.on_device = one.at("on_device").get<bool>();
    ports.push_back(std::move(port));
  }
  return ports;
}

Json to_json(const InstanceOptions& options) {
  Json json{{"lease", static_cast<int>(options.lease.kind)},
            {"multiprocessors", options.lease.multiprocessors},
            {"job_graphs", options.job_graphs}};
  if (options.device) {
    json["rule"] = static_cast<int>(options.device->rule);
    json["device"] = options.device->device;
  }
  if (options.memory_budget) json["memory_budget"] = *options.memory_budget;
  return json;
}

InstanceOptions read_instance_options(const Json& json) {
  InstanceOptions options;
  options.lease = LeaseChoice(enumerator(json.at("lease"), LeaseKind::worker),
                              whole<unsigned>(json.at("multiprocessors")));
  options.job_graphs = json.at("job_graphs").get<bool>();
  if (json.contains("rule")) {
    Placement placement(whole<int>(json.at("device")));
    placement.rule = enumerator(json.at("rule"), PlacementRule::most_free_memory);
    options.device = placement;
  }
  if (json.contains("memory_budget")) {
    options.memory_budget = whole<std::uint64_t>(json.at("memory_budget"));
  }
  return options;
}

Json to_json(const GraphOptions& options) {
  return {{"jobs_in_flight", options.jobs_in_flight},
          {"measure", options.measure},
          {"name_faults", options.name_faults},
          {"late", static_cast<int>(options.late)},
          {"changes_per_job", options.changes_per_job}};
}

GraphOptions read_graph_options(const Json& json) {
  GraphOptions options;
  options.jobs_in_flight = whole<std::uint32_t>(json.at("jobs_in_flight"));
  options.measure = json.at("measure").get<bool>();
  options.name_faults = json.at("name_faults").get<bool>();
  options.late = enumerator(json.at("late"), LateJobs::drop);
  options.changes_per_job = whole<std::uint32_t>(json.at("changes_per_job"));
  return options;
}

Json to_json(const JobInfo& job) {
  return {{"width", job.width},
          {"height", job.height},
          {"position", job.position},
          {"sample_rate", job.sample_rate},
          {"region", to_json(job.region)},
          {"extents", array_of(job.extents)}};
}

JobInfo read_job(const Json& json) {
  JobInfo job;
  job.width = whole<std::uint32_t>(json.at("width"));
  job.height = whole<std::uint32_t>(json.at("height"));
  job.position = whole<std::int64_t>(json.at("position"));
  job.sample_rate = json.at("sample_rate").get<double>();
  job.region = read_region(json.at("region"));
  for (const Json& one : json.at("extents")) job.extents.push_back(read_region(one));
  return job;
}

Json to_json(const ImageRegion& region) {
  return Json::array({region.x, region.y, region.width, region.height});
}

ImageRegion read_region(const Json& json) {
  return {whole<std::int32_t>(json.at(0)), whole<std::int32_t>(json.at(1)),
          whole<std::uint32_t>(json.at(2)), whole<std::uint32_t>(json.at(3))};
}

Json to_json(const ParameterValue& value) {
  return std::vector<double>(value.begin(), value.end());
}

ParameterValue read_value(const Json& json) {
  const auto numbers = json.get<std::vector<double>>();
  if (numbers.size() == 1) return numbers[0];
  if (numbers.size() == 2) return {numbers[0], numbers[1]};
  if (numbers.size() == 4) return {numbers[0], numbers[1], numbers[2], numbers[3]};
  throw json::DocumentError("a value has a number of numbers that there is not");
}

}  // namespace ctxbroker::detail
