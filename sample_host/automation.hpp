// SPDX-License-Identifier: Apache-2.0
// Changes of parameters over time, from a file of lines "time,node.parameter,value[,ramp]". Times
// are seconds for recordings, and frame numbers for images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctxbroker/worker_graph.hpp"

namespace ctxbroker::sample_host {

// The most that a block or a frame has: see GraphOptions::changes_per_job.
inline constexpr std::uint32_t most_changes = 65536;

// One line of the file.
struct AutomationLine {
  std::string where;  // how a message about it begins: "automation \"fades.csv\": line 3: "
  double time = 0;
  std::string node, parameter, value;
  double ramp = 0;  // how long the way to the value takes; 0: it jumps
};

// In the order of the file. Throws Failure (usage), with the line.
std::vector<AutomationLine> parse_automation(std::string_view text, const std::string& name);
std::vector<AutomationLine> read_automation(const std::filesystem::path& path);

// One change, in frames of the recording or of the sequence.
struct AutomationPoint {
  std::size_t node = 0;
  std::size_t parameter = 0;  // its index
  std::int64_t begin = 0;
  std::uint32_t ramp_frames = 0;
  double value = 0;
  double from = 0;         // a ramp's first value
  std::size_t change = 0;  // number of the change in the file, from 0

  std::int64_t end() const noexcept { return begin + ramp_frames; }
};

// Sorts the points by time and finds where each ramp begins: where the change before it has led, or
// at the value that the parameter has now.
std::vector<AutomationPoint> prepare_automation(std::vector<AutomationPoint> points);

// For images: the value of each parameter at a frame, with one of its points. A parameter that has
// no change so early is left out. `points` come from prepare_automation.
std::vector<std::pair<const AutomationPoint*, double>> values_at(
    const std::vector<AutomationPoint>& points, std::int64_t frame);

// Gives each block its changes. Blocks follow each other from frame 0 on.
class Automation {
 public:
  Automation() = default;
  // From prepare_automation.
  explicit Automation(std::vector<AutomationPoint> points) : points_(std::move(points)) {}

  // The first change beyond the `most` of a block, if all blocks have so many frames.
  std::optional<AutomationPoint> first_beyond(std::uint32_t frames, std::size_t most) const;
  // Those of the block that begins at `position`, in order of their offsets.
  void fill(std::int64_t position, std::uint32_t frames,
            std::vector<WorkerParameterChange>& changes);

 private:
  std::vector<AutomationPoint> points_;
  std::size_t next_ = 0;
  std::vector<AutomationPoint> running_;  // ramps that have begun, by their beginning
};

}  // namespace ctxbroker::sample_host
