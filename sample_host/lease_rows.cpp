#include "lease_rows.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "table.hpp"

namespace ctxbroker::sample_host {

std::vector<LeaseRow> lease_rows(const Session& session) {
  std::vector<LeaseRow> rows;
  for (const PluginInstance& instance : session.instances()) {
    const LeaseInfo lease = instance.lease();
    auto row = std::find_if(rows.begin(), rows.end(), [&](const LeaseRow& one) {
      return one.lease.tenant == lease.tenant && one.lease.device == lease.device;
    });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), LeaseRow{lease});
    }
    const Metrics metrics = instance.metrics();
    row->memory_bytes += metrics.memory_bytes;
    row->strikes += metrics.strikes;
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
