// SPDX-License-Identifier: Apache-2.0
// The end of a run: a report as JSON, and a summary for people.
// docs/run_report.schema.json describes the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "ctxbroker/gate.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/record.hpp"
#include "settings.hpp"

namespace ctxbroker::launch {

// A record of a warning or an error.
struct Note {
  Severity severity = Severity::warning;
  std::string topic, tenant, text;
};

// The facts that a process tells at its end.
struct RunFacts {
  int pid = 0;
  bool is_first = true;  // ctxb-run has become this process
  bool driver_called = false;
  bool finished = false;  // the process has exited; otherwise it runs still, or was killed
  std::string error;      // why the process was ended, or has no broker; empty: neither
  std::optional<DriverInfo> driver{};
  std::optional<GateInfo> gate{};
  std::vector<DeviceInfo> devices{};
  std::vector<ShieldInfo> shields{};  // of the devices, in their order
  std::vector<LeaseInfo> leases{};
  std::optional<BrokerMetrics> metrics{};  // unset: they could not be had
  std::vector<Note> notes{};
  std::uint64_t notes_left_out = 0;
};

// Returns the report as JSON text.
std::string report_text(const Settings& settings, const RunFacts& facts);
// The report of the first process before its first call of the driver.
std::string report_before_driver(const Settings& settings);

// Returns the path of a process's own file: `path` for the first process, and "run.PID.json" for
// the programs that it starts.
std::string path_for(const std::string& path, const Settings& settings, int pid);

// Writes the file as a whole or not at all. Throws Error (output_file).
void write_report(const std::string& path, const std::string& text);

// Returns whether something happened that the user has to hear of.
bool has_news(const RunFacts& facts);
// One sentence for each thing that happened, on a line of its own. With `all`, what every tenant
// did too.
std::string summary_text(const RunFacts& facts, bool all);

}  // namespace ctxbroker::launch
