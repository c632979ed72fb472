// SPDX-License-Identifier: Apache-2.0
// Measured reports, kept between runs as JSON files in the user's cache folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "ctxbroker/probe.hpp"

namespace ctxbroker::detail {

// The machine that a report describes: all devices of one model under one driver. Stored in the
// report's file.
struct ProbeKey {
  std::string gpu;  // the device's name
  int multiprocessors = 0;
  std::string driver_file;  // name, size and date of the library, and how many devices it has
};

struct ReadProbe {
  std::optional<ProbeReport>
      report;           // without driver, cache_file and from_cache, which the text does not hold
  std::string trouble;  // why the text is damaged; empty when it belongs to another machine
};

std::filesystem::path cache_file(const std::filesystem::path& folder, const ProbeKey& key);

// Reads a report. A missing file gives neither a report nor trouble.
ReadProbe read_cache(const std::filesystem::path& file, const ProbeKey& key);

// Writes the file completely or not at all. Returns why that failed, with the file's path, or an
// empty text.
std::string write_cache(const std::filesystem::path& file, const ProbeReport& report,
                        const ProbeKey& key);

}  // namespace ctxbroker::detail
