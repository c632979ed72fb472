// doctor --probe: what the driver does on this machine, beside what it does on the reference.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ctxbroker/probe.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// The first word of the command that probing processes are started with; people do not see it.
inline constexpr const char* probe_command = "probe-child";

// Measures with processes of this program, or reads what was measured before. Throws Error.
ProbeReport run_probes(const Options& options);

std::string format_probe(const ProbeReport& report);
nlohmann::ordered_json probe_to_json(const ProbeReport& report);

}  // namespace ctxbroker::sample_host
