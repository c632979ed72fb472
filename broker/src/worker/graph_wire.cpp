// SPDX-License-Identifier: Apache-2.0
#include "worker/graph_wire.hpp"

#include "ctxbroker/error.hpp"

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
  origin.call = json.at("call").get<std::string>();
  origin.status = json.at("status").get<int>();
  origin.status_name = json.at("status_name").get<std::string>();
  origin.device = json.at("device").get<int>();
  origin.tenant = json.at("tenant").get<std::string>();
  return {enumerator(json.at("kind"), ErrorKind::preset), json.at("message").get<std::string>(),
          origin};
}

Json to_json(const std::vector<GraphEnd>& ends) {
  Json array = Json::array();
  for (const GraphEnd& end : ends) {
    array.push_back({{"name", end.name},
                     {"channels", end.channels},
                     {"samples", static_cast<std::uint32_t>(end.samples)}});
  }
  return array;
}

std::vector<GraphEnd> read_ends(const Json& json) {
  std::vector<GraphEnd> ends;
  for (const Json& one : json) {
    GraphEnd end;
    end.name = one.at("name").get<std::string>();
    end.channels = one.at("channels").get<std::uint32_t>();
    end.samples = enumerator(one.at("samples"), SampleType::float16);
    ends.push_back(std::move(end));
  }
  return ends;
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
                              json.at("multiprocessors").get<unsigned>());
  options.job_graphs = json.at("job_graphs").get<bool>();
  if (json.contains("rule")) {
    Placement placement(json.at("device").get<int>());
    placement.rule = enumerator(json.at("rule"), PlacementRule::most_free_memory);
    options.device = placement;
  }
  if (json.contains("memory_budget")) {
    options.memory_budget = json.at("memory_budget").get<std::uint64_t>();
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
  options.jobs_in_flight = json.at("jobs_in_flight").get<std::uint32_t>();
  options.measure = json.at("measure").get<bool>();
  options.name_faults = json.at("name_faults").get<bool>();
  options.late = enumerator(json.at("late"), LateJobs::drop);
  options.changes_per_job = json.at("changes_per_job").get<std::uint32_t>();
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
  job.width = json.at("width").get<std::uint32_t>();
  job.height = json.at("height").get<std::uint32_t>();
  job.position = json.at("position").get<std::int64_t>();
  job.sample_rate = json.at("sample_rate").get<double>();
  job.region = read_region(json.at("region"));
  for (const Json& one : json.at("extents")) job.extents.push_back(read_region(one));
  return job;
}

Json to_json(const ImageRegion& region) {
  return Json::array({region.x, region.y, region.width, region.height});
}

ImageRegion read_region(const Json& json) {
  return {json.at(0).get<std::int32_t>(), json.at(1).get<std::int32_t>(),
          json.at(2).get<std::uint32_t>(), json.at(3).get<std::uint32_t>()};
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
