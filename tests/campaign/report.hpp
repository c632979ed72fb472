// SPDX-License-Identifier: Apache-2.0
// What came of the campaign: a table by fault, and each thing that was not as it has to be.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "control.hpp"
#include "faults.hpp"
#include "player.hpp"

namespace ctxbroker::campaign {

struct Row {
  int times = 0;
  std::map<std::string, int> causes;
  std::map<std::string, int> named;  // by what
  int unnamed = 0;
  std::vector<double> known_ms, back_ms, stand_by_back_ms;
  Score innocents;
  std::string control;  // what the fault does in one process; empty: not tried
  std::string left_out;
};

// Two figures that must be the same, or nearly so.
struct Drift {
  std::string what;
  std::uint64_t before = 0, after = 0;
  bool is_bad = false;
  std::string remark{};
};

class Report {
 public:
  // `repeat` is the command without the steps.
  explicit Report(std::string repeat) : repeat_(std::move(repeat)) {}

  Row& row(const Fault& fault) { return rows_[fault.name]; }
  // `step` 0: of no step. Prints at once.
  void complain(int step, const std::string& text);
  void add(Drift drift);
  int back_at_once = 0, quarantined = 0;

  void print(const std::vector<const Fault*>& faults, double seconds) const;
  [[nodiscard]] int complaints() const noexcept { return complaints_; }

 private:
  const std::string repeat_;
  std::map<std::string, Row> rows_;
  std::vector<Drift> drifts_;
  int complaints_ = 0;
};

}  // namespace ctxbroker::campaign
