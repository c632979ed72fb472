// SPDX-License-Identifier: Apache-2.0
// Every arrangement with every load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qos/arrangement.hpp"
#include "qos/running_load.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {

struct CampaignOptions {
  std::string only;     // regular expression over "arrangement/load"
  double seconds = 3;   // under load, for each case
  unsigned slices = 4;  // of it, each after a slice of silence a quarter as long
  LoadSettings loads;
};

struct CaseResult {
  const Arrangement* arrangement = nullptr;
  const Load* load = nullptr;
  unsigned victims_multiprocessors = 0, neighbours_multiprocessors = 0;
  Summary solo, loaded;  // nanoseconds; solo: in the slices of silence of the same case
  std::uint64_t done = 0, refused = 0;
  std::string failure;  // empty: it went well
};

// The names that `only` matches; throws std::invalid_argument when it is no regular expression.
std::vector<std::string> chosen_cases(const std::string& only);

// Prints a row per case as it ends.
std::vector<CaseResult> run_campaign(Session& session, const CampaignOptions& options);

// One JSON document. Throws std::runtime_error when the file cannot be written.
void write_json(const std::string& path, Session& session, const CampaignOptions& options,
                const std::vector<CaseResult>& results);

}  // namespace ctxbroker::bench
