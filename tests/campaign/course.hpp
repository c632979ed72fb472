// SPDX-License-Identifier: Apache-2.0
// The steps of a campaign, and what each of them has to show.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "faults.hpp"
#include "player.hpp"
#include "report.hpp"
#include "support/left.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::campaign {

struct Step {
  int number = 0;  // from 1
  const Fault* fault = nullptr;
  int guilty = 0;
  std::chrono::milliseconds delay{0};  // of a signal from outside
};

// Each of the faults so often, in an order that the seed gives, and each plug-in in its turn.
std::vector<Step> plan(const std::vector<const Fault*>& faults, int each, unsigned seed);

// One copy of the fixture for each plug-in, because a file is one tenant.
class Copies {
 public:
  Copies();
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const noexcept { return files_; }

 private:
  TempFolder folder_;
  std::vector<std::filesystem::path> files_;
};

struct CourseOptions {
  std::chrono::milliseconds call_timeout{4000};
  bool limits_memory = true;
  bool is_verbose = false;  // prints every step
};

class Course {
 public:
  // Starts all plug-ins, each in its worker.
  Course(const Copies& copies, const CourseOptions& options, Report& report, soak::Watch& watch);
  void run(const Step& step);
  // Compares what this process and its workers hold with what they held after the start.
  void end();

 private:
  struct Seen {
    std::string text;
    WorkerExit end;
    double known_ms = 0;
  };
  // The guilty one's job, and what the host was told.
  std::optional<Seen> fail(const Step& step, Player& guilty);
  void judge(const Step& step, const Player& guilty, const Seen& seen);
  void bring_back(const Step& step, Player& guilty, int dead);
  void wait_for_innocents(const Step& step, const std::vector<std::uint64_t>& begun);
  void look_at_innocents(const Step& step);
  void look_for_drift(const Step& step);
  void complain(const Step& step, const std::string& text);

  const CourseOptions options_;
  Report& report_;
  soak::Watch& watch_;
  std::vector<std::unique_ptr<Player>> players_;
  std::vector<std::uint64_t> ends_;  // of each plug-in's workers, as they have to be
  std::vector<unsigned> crashes_;    // since it was last pardoned
  Left all_up_{};
};

}  // namespace ctxbroker::campaign
