// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>

namespace ctxbroker::campaign {
namespace {

std::string counted(const std::map<std::string, int>& all, int times) {
  std::string text;
  for (const auto& [what, count] : all) {
    text += (text.empty() ? "" : ", ") + what;
    if (count != times) text += " " + std::to_string(count) + "x";
  }
  return text.empty() ? "-" : text;
}

std::string median_and_most(std::vector<double> all) {
  if (all.empty()) return "-";
  std::sort(all.begin(), all.end());
  char text[64];
  std::snprintf(text, sizeof text, "%.0f / %.0f", all[all.size() / 2], all.back());
  return text;
}

}  // namespace

void Report::complain(int step, const std::string& given) {
  constexpr std::size_t enough = 500;
  const std::string text = given.substr(0, enough);
  ++complaints_;
  if (step == 0) {
    std::printf("WRONG: %s\n", text.c_str());
  } else {
    std::printf(
        "WRONG in step %d: %s\n  to repeat it: %s --last %d (--first %d: this step alone)\n", step,
        text.c_str(), repeat_.c_str(), step, step);
  }
}

void Report::add(Drift drift) {
  if (drift.is_bad) {
    complain(0, drift.what + ": " + std::to_string(drift.before) + " before, " +
                    std::to_string(drift.after) + " after");
  }
  drifts_.push_back(std::move(drift));
}

void Report::print(const std::vector<const Fault*>& faults, double seconds) const {
  std::printf("\n%-16s %5s  %-14s %-17s %13s %13s %13s  %-24s %10s  %s\n", "fault", "times",
              "ended as", "named by", "known ms", "back ms", "by stand-by", "innocents' frames",
              "longest ms", "the same in one process");
  std::printf("%-16s %5s  %-14s %-17s %13s %13s %13s  %-24s\n", "", "", "", "", "median / max",
              "median / max", "median / max", "right / wrong / missing");
  for (const Fault* fault : faults) {
    const auto found = rows_.find(fault->name);
    if (found == rows_.end()) continue;
    const Row& row = found->second;
    if (!row.left_out.empty()) {
      std::printf("%-16s left out: %s\n", fault->name, row.left_out.c_str());
      continue;
    }
    std::string named = counted(row.named, row.times);
    if (row.unnamed != 0) named += ", nothing " + std::to_string(row.unnamed) + "x";
    const std::string frames = std::to_string(row.innocents.right) + " / " +
                               std::to_string(row.innocents.wrong) + " / " +
                               std::to_string(row.innocents.missing);
    std::printf("%-16s %5d  %-14s %-17s %13s %13s %13s  %-24s %10.0f  %s\n", fault->name, row.times,
                counted(row.causes, row.times).c_str(), named.c_str(),
                median_and_most(row.known_ms).c_str(), median_and_most(row.back_ms).c_str(),
                median_and_most(row.stand_by_back_ms).c_str(), frames.c_str(),
                row.innocents.longest_ms, row.control.empty() ? "not tried" : row.control.c_str());
  }
  std::printf("\nback at once: %d times; quarantined, refused, pardoned and back: %d times\n",
              back_at_once, quarantined);
  for (const Drift& drift : drifts_) {
    std::printf("%s: %llu before, %llu after%s%s\n", drift.what.c_str(),
                static_cast<unsigned long long>(drift.before),
                static_cast<unsigned long long>(drift.after), drift.remark.c_str(),
                drift.is_bad ? "  WRONG" : "");
  }
  if (complaints_ == 0) {
    std::printf("passed in %.1f s\n", seconds);
  } else {
    std::printf("FAILED with %d complaints in %.1f s: %s\n", complaints_, seconds, repeat_.c_str());
  }
}

}  // namespace ctxbroker::campaign
