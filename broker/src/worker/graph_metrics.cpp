// SPDX-License-Identifier: Apache-2.0
// Metrics that come from a worker.
#include "observe/metric_figures.hpp"
#include "plugin/foreign_text.hpp"
#include "worker/graph_wire.hpp"

namespace ctxbroker::detail {
namespace {

std::string name_in(const Json& json) {
  return take_message(json.get<std::string>().c_str());
}

// Reads figures of an object.
auto reading(const Json& json) {
  return [&json](const char* name, auto& figure) {
    using Figure = std::remove_reference_t<decltype(figure)>;
    if constexpr (std::is_floating_point_v<Figure>) {
      figure = json.at(name).template get<Figure>();
    } else {
      figure = whole<Figure>(json.at(name));
    }
  };
}

LeaseState state_in(const Json& json) {
  for (const LeaseState state :
       {LeaseState::ready, LeaseState::lost, LeaseState::ended, LeaseState::hung}) {
    if (json == to_string(state)) return state;
  }
  throw json::DocumentError("a lease has an unknown state");
}

MemorySource memory_in(const Json& json) {
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    if (json == to_string(source)) return source;
  }
  throw json::DocumentError("a tenant has an unknown source of memory");
}

LeaseMetrics read_lease(const Json& json) {
  LeaseMetrics lease;
  lease.device = whole<int>(json.at("device"));
  lease.granted = LeaseChoice(
      parse_lease_kind(json.at("kind").get<std::string>()).value_or(LeaseKind::automatic),
      whole<unsigned>(json.at("multiprocessors")));
  lease.state = state_in(json.at("state"));
  visit_lease(lease, reading(json));
  return lease;
}

TenantMetrics read_tenant(const Json& json) {
  TenantMetrics tenant;
  tenant.id.value = whole<std::uint32_t>(json.at("id"));
  tenant.name = name_in(json.at("name"));
  tenant.strikes = whole<std::uint64_t>(json.at("strikes"));
  tenant.memory = memory_in(json.at("memory"));
  tenant.store_unused_bytes = whole<std::uint64_t>(json.at("store_unused_bytes"));
  tenant.held_bytes = whole<std::uint64_t>(json.at("held_bytes"));
  tenant.held_things = whole<std::uint64_t>(json.at("held_things"));
  for (const auto& [function, calls] : json.at("guarded_calls").items()) {
    tenant.guarded_calls[take_message(function.c_str())] = whole<std::uint64_t>(calls);
  }
  for (const auto& [kind, things] : json.at("held").items()) {
    tenant.held[take_message(kind.c_str())] = {whole<std::uint64_t>(things.at("count")),
                                               whole<std::uint64_t>(things.at("bytes"))};
  }
  visit_waits(tenant.waits, reading(json.at("waits")));
  for (const auto& [name, calls] : json.at("realtime").items()) {
    visit_realtime(tenant.realtime[take_message(name.c_str())], reading(calls));
  }
  for (const Json& one : json.at("leases")) tenant.leases.push_back(read_lease(one));
  for (const Json& one : json.at("instances")) {
    InstanceMetrics& instance = tenant.instances.emplace_back();
    instance.plugin = name_in(one.at("plugin"));
    instance.generation = whole<std::uint64_t>(one.at("generation"));
    visit_instance(instance.metrics, reading(one));
  }
  return tenant;
}

}  // namespace

BrokerMetrics read_metrics(const Json& json) {
  BrokerMetrics metrics;
  for (const Json& one : json.at("tenants")) metrics.tenants.push_back(read_tenant(one));
  for (const Json& one : json.at("put_off")) {
    PutOffMetrics& put_off = metrics.put_off.emplace_back();
    put_off.tenant.value = whole<std::uint32_t>(one.at("tenant"));
    put_off.tenant_name = name_in(one.at("tenant_name"));
    put_off.device = whole<int>(one.at("device"));
    put_off.what = name_in(one.at("what"));
    put_off.count = whole<std::uint64_t>(one.at("count"));
    put_off.bytes = whole<std::uint64_t>(one.at("bytes"));
  }
  return metrics;
}

}  // namespace ctxbroker::detail
