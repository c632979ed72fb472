// A report as JSON text, and back.
#pragma once

#include <optional>
#include <string>

#include "ctxbroker/probe.hpp"

namespace ctxbroker::detail {

// Which machine a report holds for; kept beside it.
struct ProbeKey {
  std::string gpu, gpu_uuid;
  std::string driver_file;  // name, size and date of the library, and how many devices it has
};

std::string write_probe(const ProbeReport& report, const ProbeKey& key);

struct ReadProbe {
  std::optional<ProbeReport> report;  // driver, cache_file and from_cache are not in the text
  std::string trouble;                // why there is none: damaged text; empty: of another machine
};

ReadProbe read_probe(const std::string& text, const ProbeKey& key);

}  // namespace ctxbroker::detail
