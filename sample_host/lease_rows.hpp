// SPDX-License-Identifier: Apache-2.0
// The leases of a session: one row per plug-in library and device.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ctxbroker/lease.hpp"
#include "session.hpp"

namespace ctxbroker::sample_host {

struct LeaseRow {
  LeaseInfo lease;                 // the first of its plug-ins' view of it
  std::uint64_t memory_bytes = 0;  // that the tenant holds now
  std::uint64_t strikes = 0;       // of the tenant; in its first row
};

// In the graph's order.
std::vector<LeaseRow> lease_rows(const Session& session);

// A table; `reasons` adds a column that tells why each lease is of its kind.
std::string format_leases(const std::vector<LeaseRow>& rows, bool reasons);
nlohmann::ordered_json to_json(const LeaseRow& row);

}  // namespace ctxbroker::sample_host
