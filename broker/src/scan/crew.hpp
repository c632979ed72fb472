// SPDX-License-Identifier: Apache-2.0
// Several scanning programs at work, seen from the host.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "scan/examine.hpp"

namespace ctxbroker::detail {

struct CrewOrders {
  std::filesystem::path program;
  std::chrono::milliseconds deadline;  // of one file
  unsigned at_once;
  std::function<bool(std::size_t)> begins;  // with the file's index; false ends the work
  std::function<void(std::size_t, const Examination&)> done;
};

struct CrewResult {
  bool stopped = false;  // by `begins`
  // Why the scanning program does not work here, as a sentence without a subject: files that are
  // not done have not been looked at. Empty: all is well.
  std::string trouble;
};

// Has all files examined, and calls `done` once for each, in any order. A scanning program that
// ends or does not answer costs the file that it was at. The programs have ended when this returns.
CrewResult examine_all(const CrewOrders& orders, const std::vector<std::filesystem::path>& files);

}  // namespace ctxbroker::detail
