// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "ctxbroker/metrics.hpp"

namespace ctxbroker {
namespace {

using Json = nlohmann::ordered_json;

Json in_json(const LeaseMetrics& lease) {
  return {{"device", lease.device},
          {"kind", to_string(lease.granted.kind)},
          {"multiprocessors", lease.granted.multiprocessors},
          {"state", to_string(lease.state)},
          {"generation", lease.generation},
          {"guards_entered", lease.guards_entered},
          {"jobs", lease.jobs},
          {"launches", lease.launches},
          {"device_seconds", lease.device_seconds},
          {"memory_bytes", lease.memory_bytes},
          {"memory_peak_bytes", lease.memory_peak_bytes},
          {"streams", lease.streams},
          {"events", lease.events},
          {"modules", lease.modules},
          {"allocations", lease.allocations},
          {"graphs", lease.graphs},
          {"module_bytes", lease.module_bytes},
          {"module_loads", lease.module_loads},
          {"module_reloads", lease.module_reloads},
          {"module_unloads", lease.module_unloads},
          {"module_load_seconds", lease.module_load_seconds}};
}

Json in_json(const InstanceMetrics& instance) {
  const Metrics& metrics = instance.metrics;
  return {{"plugin", instance.plugin},
          {"generation", instance.generation},
          {"jobs", metrics.jobs},
          {"launches", metrics.launches},
          {"graph_jobs", metrics.graph_jobs},
          {"late_jobs", metrics.late_jobs},
          {"device_seconds", metrics.device_seconds},
          {"memory_bytes", metrics.memory_bytes},
          {"memory_peak_bytes", metrics.memory_peak_bytes},
          {"strikes", metrics.strikes}};
}

Json in_json(const TenantMetrics& tenant) {
  Json json{{"id", tenant.id.value},           {"name", tenant.name},
            {"strikes", tenant.strikes},       {"guarded_calls", Json::object()},
            {"held_bytes", tenant.held_bytes}, {"held_things", tenant.held_things}};
  for (const auto& [function, calls] : tenant.guarded_calls) {
    json["guarded_calls"][function] = calls;
  }
  Json& held = json["held"] = Json::object();
  for (const auto& [kind, things] : tenant.held) {
    held[kind] = {{"count", things.count}, {"bytes", things.bytes}};
  }
  json["waits"] = {{"count", tenant.waits.count},
                   {"seconds", tenant.waits.seconds},
                   {"longest_seconds", tenant.waits.longest_seconds}};
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
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ctxbroker
