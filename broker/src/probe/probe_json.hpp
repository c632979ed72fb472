// A report as JSON text, and back.
#pragma once

#include <optional>
#include <string>

#include "ctxbroker/probe.hpp"

namespace ctxbroker::detail {

// What a report holds for, all devices of one model; kept beside it.
struct ProbeKey {
  std::string gpu;  // the device's name
  int multiprocessors = 0;
  std::string driver_file;  // name, size and date of the library, and how many devices it has
};

std::string write_probe(const ProbeReport& report, const ProbeKey& key);

struct ReadProbe {
  std::optional<ProbeReport> report;  // driver, cache_file and from_cache are not in the text
  std::string trouble;                // why there is none: damaged text; empty: of another machine
};

ReadProbe read_probe(const std::string& text, const ProbeKey& key);

}  // namespace ctxbroker::detail
