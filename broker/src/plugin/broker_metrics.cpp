// SPDX-License-Identifier: Apache-2.0
// BrokerImpl: what is told of its tenants.
#include "gate/rule.hpp"
#include "ledger/ledger.hpp"
#include "observe/counters.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker::detail {
namespace {

// Counted up and down by several threads, so that a snapshot could be below zero for a moment.
std::uint64_t snapshot(const std::atomic<std::int64_t>& count) noexcept {
  const std::int64_t value = count.load(std::memory_order_relaxed);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

LeaseMetrics metrics_of(const Lease& lease) {
  const LeaseInfo info = lease.info();
  const WorkCounters& work = lease.work();
  const LeaseCounters& holdings = lease.counters();
  LeaseMetrics metrics;
  metrics.device = info.device;
  metrics.granted = info.granted;
  metrics.state = info.state;
  metrics.generation = info.generation;
  metrics.guards_entered = lease.users().entered();
  metrics.jobs = work.jobs.load(std::memory_order_relaxed);
  metrics.launches = work.launches.load(std::memory_order_relaxed);
  metrics.device_seconds =
      static_cast<double>(work.device_nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  metrics.memory_bytes = holdings.memory.held();
  metrics.memory_peak_bytes = holdings.memory.peak();
  metrics.streams = snapshot(holdings.streams);
  metrics.events = snapshot(holdings.events);
  metrics.modules = snapshot(holdings.modules);
  metrics.allocations = snapshot(holdings.allocations);
  metrics.graphs = snapshot(holdings.graphs);
  metrics.module_bytes = snapshot(holdings.module_bytes);
  metrics.module_loads = holdings.module_loads.load(std::memory_order_relaxed);
  metrics.module_reloads = holdings.module_reloads.load(std::memory_order_relaxed);
  metrics.module_unloads = holdings.module_unloads.load(std::memory_order_relaxed);
  metrics.module_load_seconds =
      static_cast<double>(holdings.module_load_nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  return metrics;
}

void add_realtime(const TenantIdentity& tenant, TenantMetrics& metrics) {
  constexpr double second = 1e9;  // ns
  for (std::size_t call = 0; call < realtime_call_count; ++call) {
    const RealtimeFigures figures = tenant.realtime.figures(call);
    if (figures.count == 0 && figures.refused == 0) continue;
    metrics.realtime[realtime_calls[call].name] = {
        figures.count, static_cast<double>(figures.nanoseconds) / second,
        static_cast<double>(figures.longest) / second, figures.refused};
  }
}

void add_gated(const TenantIdentity& tenant, TenantMetrics& metrics) {
  GatedTenant* const gated = tenant.gated.load(std::memory_order_acquire);
  // Its code may be another tenant's by now.
  if (gated == nullptr || &gated->identity() != &tenant) return;
  for (std::size_t index = 0; index < rule_count(); ++index) {
    const std::uint64_t calls = gated->hits(index);
    if (calls != 0) metrics.guarded_calls[rule_at(index).symbol] += calls;
  }
  metrics.held_bytes = gated->budget().held();
  for (const Holding& holding : ledger().held_by(gated->holder())) {
    if (holding.ended) continue;
    HeldThings& things = metrics.held[to_string(holding.kind)];
    ++things.count;
    things.bytes += holding.bytes;
    ++metrics.held_things;
  }
  if (const int retains = gated->primary_retains(); retains > 0) {
    metrics.held["primary context"].count = static_cast<std::uint64_t>(retains);
  }
  constexpr double second = 1e9;  // ns
  const WaitTotals waits = gated->waits();
  metrics.waits = {waits.count, static_cast<double>(waits.nanoseconds) / second,
                   static_cast<double>(waits.longest) / second};
}

}  // namespace

std::map<std::uint32_t, std::string> BrokerImpl::tenant_names() const {
  std::unique_lock lock(opened_mutex_);
  std::map<std::uint32_t, std::string> names = opened_names_;
  lock.unlock();
  names[host_->id.value] = host_->name;
  for (const auto& [id, tenant] : tenants_) names[tenant->id.value] = tenant->name;
  return names;
}

BrokerMetrics BrokerImpl::metrics() const {
  if (leases_) leases_->free_what_is_done();
  std::map<std::uint32_t, TenantMetrics> by_id;
  const auto add = [&](const TenantIdentity& tenant) {
    TenantMetrics& metrics = by_id[tenant.id.value];
    metrics.id = tenant.id;
    metrics.name = tenant.name;
    metrics.strikes = tenant.strikes.load(std::memory_order_relaxed);
    metrics.memory = tenant.uses_store() ? MemorySource::pool : MemorySource::driver;
    add_gated(tenant, metrics);
    add_realtime(tenant, metrics);
  };
  add(*host_);
  for (const auto& [id, tenant] : tenants_) add(*tenant);
  for (const auto& tenant : opened_now()) add(*tenant->identity());
  if (leases_) {
    for (const auto& lease : leases_->all()) {
      // One whose work does not end may outlive its tenant.
      if (!by_id.contains(lease->tenant().id.value)) add(lease->tenant());
      TenantMetrics& tenant = by_id[lease->tenant().id.value];
      tenant.leases.push_back(metrics_of(*lease));
      tenant.store_unused_bytes += lease->unused_store_bytes();
    }
  }
  {
    const std::lock_guard lock(instances_mutex_);
    for (const Instance* instance : instances_) {
      by_id[instance->tenant().id.value].instances.push_back(
          {instance->description().id, instance->generation(), instance->metrics()});
    }
  }
  BrokerMetrics metrics;
  if (leases_) {
    for (const PutOff& one : leases_->put_off()) {
      metrics.put_off.push_back(
          {one.tenant, one.tenant_name, one.device, one.what, one.count, one.bytes});
    }
    for (const Holding& one : ledger().given_up()) {
      const TenantIdentity& tenant = one.lease->tenant();
      if (tenant.recorder != recorder_.recorder) continue;
      metrics.put_off.push_back(
          {tenant.id, tenant.name, one.lease->device_ordinal(), to_string(one.kind), 1, one.bytes});
    }
  }
  if (claims_ != nullptr) {
    metrics.libraries = claims_->libraries();
    metrics.unmatched_patterns = claims_->unmatched();
    metrics.late_patterns = claims_->late();
  }
  {
    const std::lock_guard kept_lock(kept_mutex_);
    for (const auto& [call, count] : kept_primaries_) {
      const auto& [function, library, device] = call;
      metrics.refused.push_back({function, library, device, count});
    }
  }
  for (auto& [id, tenant] : by_id) metrics.tenants.push_back(std::move(tenant));
  return metrics;
}

}  // namespace ctxbroker::detail
