// SPDX-License-Identifier: Apache-2.0
// The command line of ctxb-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/driver.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/record.hpp"

namespace ctxbroker::launch {

// --tenant NAME=GLOB[@LEASE]
struct TenantOption {
  std::string name, glob;
  std::optional<LeaseChoice> lease;
};

struct Options {
  std::string policy;
  std::vector<TenantOption> tenants;
  bool each = false;
  std::string report, trace;
  std::optional<Severity> log;
  std::optional<DriverChoice> driver;
  bool children = true;
  bool verbose = false;
  bool check = false;
  std::vector<std::string> command;  // the program and its arguments; not empty
};

// Returns nothing after --help and --version, which it prints. Throws Failure.
std::optional<Options> parse_options(int argc, const char* const* argv);

// Throws Failure for a text that --tenant does not allow.
TenantOption parse_tenant(const std::string& text);

}  // namespace ctxbroker::launch
