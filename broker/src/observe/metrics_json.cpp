// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "ctxbroker/metrics.hpp"
#include "observe/metric_figures.hpp"

namespace ctxbroker {
namespace {

using Json = nlohmann::ordered_json;

// Adds figures to an object.
auto adding_to(Json& json) {
  return [&json](const char* name, auto figure) { json[name] = figure; };
}

Json in_json(const LeaseMetrics& lease) {
  Json json{{"device", lease.device},
            {"kind", to_string(lease.granted.kind)},
            {"multiprocessors", lease.granted.multiprocessors},
            {"state", to_string(lease.state)}};
  detail::visit_lease(lease, adding_to(json));
  return json;
}

Json in_json(const InstanceMetrics& instance) {
  Json json{{"plugin", instance.plugin}, {"generation", instance.generation}};
  detail::visit_instance(instance.metrics, adding_to(json));
  return json;
}

Json in_json(const TenantMetrics& tenant) {
  Json json{{"id", tenant.id.value},
            {"name", tenant.name},
            {"strikes", tenant.strikes},
            {"memory", to_string(tenant.memory)},
            {"store_unused_bytes", tenant.store_unused_bytes},
            {"guarded_calls", Json::object()},
            {"held_bytes", tenant.held_bytes},
            {"held_things", tenant.held_things}};
  for (const auto& [function, calls] : tenant.guarded_calls) {
    json["guarded_calls"][function] = calls;
  }
  Json& held = json["held"] = Json::object();
  for (const auto& [kind, things] : tenant.held) {
    held[kind] = {{"count", things.count}, {"bytes", things.bytes}};
  }
  detail::visit_waits(tenant.waits, adding_to(json["waits"]));
  Json& realtime = json["realtime"] = Json::object();
  for (const auto& [name, calls] : tenant.realtime) {
    detail::visit_realtime(calls, adding_to(realtime[name]));
  }
  Json& leases = json["leases"] = Json::array();
  for (const LeaseMetrics& lease : tenant.leases) leases.push_back(in_json(lease));
  Json& instances = json["instances"] = Json::array();
  for (const InstanceMetrics& one : tenant.instances) instances.push_back(in_json(one));
  return json;
}

}  // namespace

std::string to_json(const BrokerMetrics& metrics) {
  Json json{{"schema", "ctxbroker.metrics/1"}};
  Json& tenants = json["tenants"] = Json::array();
  for (const TenantMetrics& tenant : metrics.tenants) tenants.push_back(in_json(tenant));
  Json& put_off = json["put_off"] = Json::array();
  for (const PutOffMetrics& one : metrics.put_off) {
    put_off.push_back({{"tenant", one.tenant.value},
                       {"tenant_name", one.tenant_name},
                       {"device", one.device},
                       {"what", one.what},
                       {"count", one.count},
                       {"bytes", one.bytes}});
  }
  Json& libraries = json["libraries"] = Json::array();
  for (const LibraryMetrics& one : metrics.libraries) {
    libraries.push_back({{"path", one.path},
                         {"tenant", one.tenant.value},
                         {"tenant_name", one.tenant_name},
                         {"pattern", one.pattern}});
  }
  json["unmatched_patterns"] = metrics.unmatched_patterns;
  Json& late = json["late_patterns"] = Json::array();
  for (const LatePattern& one : metrics.late_patterns) {
    late.push_back({{"pattern", one.pattern},
                    {"tenant_name", one.tenant_name},
                    {"taken_by", one.taken_by},
                    {"taken_for", one.taken_for}});
  }
  Json& refused = json["refused"] = Json::array();
  for (const RefusedCalls& one : metrics.refused) {
    refused.push_back({{"function", one.function},
                       {"library", one.library},
                       {"device", one.device},
                       {"count", one.count}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ctxbroker
