// SPDX-License-Identifier: Apache-2.0
#include "lease_rows.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "table.hpp"

namespace ctxbroker::sample_host {

namespace {

// What the tenant holds in that life of the lease, and what its code did and made through the
// driver, which is counted once for all devices.
void add_totals(const TenantMetrics& tenant, bool first_of_tenant, LeaseRow& row) {
  for (const LeaseMetrics& lease : tenant.leases) {
    if (lease.generation == row.lease.generation) row.memory_bytes += lease.memory_bytes;
  }
  if (first_of_tenant) {
    row.memory_bytes += tenant.held_bytes;
    row.strikes = tenant.strikes;
  }
}

}  // namespace

std::vector<LeaseRow> lease_rows(const Session& session) {
  std::vector<LeaseRow> rows;
  const BrokerMetrics metrics = session.engine().all_metrics();
  for (std::size_t i = 0; i < session.plan().nodes.size(); ++i) {
    const LeaseInfo lease = session.engine().lease(i);
    const auto of_tenant = [&](const LeaseRow& one) { return one.lease.tenant == lease.tenant; };
    const auto same = [&](const LeaseRow& one) {
      return of_tenant(one) && one.lease.device == lease.device;
    };
    if (std::any_of(rows.begin(), rows.end(), same)) continue;
    LeaseRow row{lease};
    const bool first_of_tenant = std::none_of(rows.begin(), rows.end(), of_tenant);
    for (const TenantMetrics& tenant : metrics.tenants) {
      if (tenant.id == lease.tenant) add_totals(tenant, first_of_tenant, row);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string format_leases(const std::vector<LeaseRow>& rows, bool reasons) {
  std::vector<Column> columns{{"tenant"},
                              {"device", Align::right},
                              {"asked"},
                              {"granted"},
                              {"SMs", Align::right},
                              {"memory held", Align::right},
                              {"generation", Align::right},
                              {"state"},
                              {"strikes", Align::right}};
  if (reasons) columns.push_back({"reason"});
  std::vector<std::vector<std::string>> cells;
  for (const LeaseRow& row : rows) {
    const LeaseInfo& lease = row.lease;
    cells.push_back({lease.tenant_name, std::to_string(lease.device), to_string(lease.asked),
                     to_string(lease.granted.kind), std::to_string(lease.granted.multiprocessors),
                     format_bytes(row.memory_bytes), std::to_string(lease.generation),
                     to_string(lease.state), std::to_string(row.strikes)});
    if (reasons) cells.back().push_back(lease.reason);
  }
  return format_table(columns, cells);
}

nlohmann::ordered_json to_json(const LeaseRow& row) {
  const LeaseInfo& lease = row.lease;
  return {{"tenant", lease.tenant_name},
          {"device", lease.device},
          {"asked", to_string(lease.asked)},
          {"granted", to_string(lease.granted.kind)},
          {"multiprocessors", lease.granted.multiprocessors},
          {"memory_bytes", row.memory_bytes},
          {"generation", lease.generation},
          {"state", to_string(lease.state)},
          {"strikes", row.strikes},
          {"reason", lease.reason}};
}

}  // namespace ctxbroker::sample_host
