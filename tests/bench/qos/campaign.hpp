// SPDX-License-Identifier: Apache-2.0
// Every arrangement with every load. A load that takes memory is a case for each source of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qos/arrangement.hpp"
#include "qos/running_load.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {

struct Case {
  const Arrangement* arrangement = nullptr;
  const Load* load = nullptr;
  const NeighboursMemory* memory = nullptr;
};

// Returns "arrangement/load", and for a load that takes memory "arrangement/load/memory".
std::string name_of(const Case& one);

struct CampaignOptions {
  double seconds = 3;   // under load, for each case
  unsigned slices = 4;  // of it, each after a slice of silence a quarter as long
  LoadSettings loads;
};

struct CaseResult {
  Case what;
  unsigned victims_multiprocessors = 0, neighbours_multiprocessors = 0;
  Summary solo, loaded;  // nanoseconds; solo: in the slices of silence of the same case
  std::uint64_t done = 0, refused = 0;
  std::uint64_t kept = 0;  // bytes that the neighbour's pools had unused at the end
  std::string failure;     // empty: it went well
};

// Returns the cases whose names the regular expression matches. Throws std::regex_error.
std::vector<Case> chosen_cases(const std::string& only);

// Prints a row per case as it ends.
std::vector<CaseResult> run_campaign(Session& session, const CampaignOptions& options,
                                     const std::vector<Case>& cases);

// Writes one JSON document, as Google Benchmark does: bench_report.py reads it, and so do tools
// that compare benchmarks. Throws std::runtime_error when the file cannot be written.
void write_json(const std::string& path, Session& session, const CampaignOptions& options,
                const std::vector<CaseResult>& results);

}  // namespace ctxbroker::bench
