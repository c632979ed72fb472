// SPDX-License-Identifier: Apache-2.0
// doctor --probe: what the driver does on this machine, beside what it does on the reference.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/probe.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// The first word of the command that probing processes are started with; people do not see it.
inline constexpr const char* probe_command = "probe-child";

// What holds for all devices of one model.
struct ModelProbe {
  std::vector<int> devices;  // ordinals; the first one was measured
  ProbeReport report;
};

// Measures one device of each model with processes of this program, or reads what was measured
// before. Throws Error.
std::vector<ModelProbe> run_probes(const Options& options, const std::vector<DeviceInfo>& devices);

std::string format_probe(const ModelProbe& probe);
nlohmann::ordered_json probe_to_json(const ModelProbe& probe);

}  // namespace ctxbroker::sample_host
