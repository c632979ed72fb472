// SPDX-License-Identifier: Apache-2.0
// The figures in metrics, with their names in JSON. to_json writes them, and the host of a worker
// reads them. Each function calls visit(name, figure) for each one; the struct may be const.
#pragma once

#include "ctxbroker/metrics.hpp"

namespace ctxbroker::detail {

template <typename Lease, typename Visit>
void visit_lease(Lease& lease, const Visit& visit) {
  visit("generation", lease.generation);
  visit("guards_entered", lease.guards_entered);
  visit("jobs", lease.jobs);
  visit("launches", lease.launches);
  visit("device_seconds", lease.device_seconds);
  visit("memory_bytes", lease.memory_bytes);
  visit("memory_peak_bytes", lease.memory_peak_bytes);
  visit("streams", lease.streams);
  visit("events", lease.events);
  visit("modules", lease.modules);
  visit("allocations", lease.allocations);
  visit("graphs", lease.graphs);
  visit("module_bytes", lease.module_bytes);
  visit("module_loads", lease.module_loads);
  visit("module_reloads", lease.module_reloads);
  visit("module_unloads", lease.module_unloads);
  visit("module_load_seconds", lease.module_load_seconds);
}

template <typename Figures, typename Visit>
void visit_instance(Figures& metrics, const Visit& visit) {
  visit("jobs", metrics.jobs);
  visit("launches", metrics.launches);
  visit("graph_jobs", metrics.graph_jobs);
  visit("late_jobs", metrics.late_jobs);
  visit("device_seconds", metrics.device_seconds);
  visit("memory_bytes", metrics.memory_bytes);
  visit("memory_peak_bytes", metrics.memory_peak_bytes);
  visit("strikes", metrics.strikes);
}

template <typename Waits, typename Visit>
void visit_waits(Waits& waits, const Visit& visit) {
  visit("count", waits.count);
  visit("seconds", waits.seconds);
  visit("longest_seconds", waits.longest_seconds);
}

template <typename Calls, typename Visit>
void visit_realtime(Calls& calls, const Visit& visit) {
  visit("count", calls.count);
  visit("seconds", calls.seconds);
  visit("longest_seconds", calls.longest_seconds);
  visit("refused", calls.refused);
}

}  // namespace ctxbroker::detail
