// SPDX-License-Identifier: Apache-2.0
#include "automation.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "exit_code.hpp"
#include "json/document.hpp"

namespace ctxbroker::sample_host {

namespace {

constexpr double latest = 1e9;  // seconds or frames

constexpr const char* format =
    "a line is TIME,NODE.PARAMETER,VALUE or TIME,NODE.PARAMETER,VALUE,RAMP";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

// On one line whatever it holds.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 250;
  return json::quoted(std::string(text.substr(0, longest))) + (text.size() > longest ? "..." : "");
}

double parse_time(std::string_view text, const std::string& where, const char* what) {
  double time = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && time >= 0 && time <= latest) return time;
  throw Failure(ExitCode::usage, where + in_quotes(text) + " is not " + what +
                                     "; it is a number from 0 to 1000000000");
}

AutomationLine parse_line(std::string_view text, const std::string& where) {
  const std::vector<std::string_view> cells = split(text);
  if (cells.size() != 3 && cells.size() != 4) {
    throw Failure(ExitCode::usage, where + in_quotes(text) + " has " +
                                       std::to_string(cells.size()) +
                                       (cells.size() == 1 ? " field; " : " fields; ") + format);
  }
  AutomationLine line;
  line.where = where;
  line.time = parse_time(cells[0], where, "a time");
  const std::size_t dot = cells[1].find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == cells[1].size()) {
    throw Failure(ExitCode::usage,
                  where + in_quotes(cells[1]) + " is not a node's parameter; " + format);
  }
  line.node = cells[1].substr(0, dot);
  line.parameter = cells[1].substr(dot + 1);
  if (cells[2].empty()) throw Failure(ExitCode::usage, where + "the value is missing; " + format);
  line.value = cells[2];
  if (cells.size() == 4) line.ramp = parse_time(cells[3], where, "a length of a ramp");
  return line;
}

double value_at(const AutomationPoint& point, std::int64_t frame) {
  if (frame >= point.end()) return point.value;
  const double part = static_cast<double>(frame - point.begin) / point.ramp_frames;
  return point.from + (point.value - point.from) * part;
}

bool same_parameter(const AutomationPoint& a, const AutomationPoint& b) {
  return a.node == b.node && a.parameter == b.parameter;
}

}  // namespace

std::vector<AutomationLine> parse_automation(std::string_view text, const std::string& name) {
  std::vector<AutomationLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::string where = "automation \"" + name + "\": line " + std::to_string(number) + ": ";
    if (const std::size_t at = line.find('\0'); at != std::string_view::npos) {
      throw Failure(ExitCode::usage, where + "byte " + std::to_string(at) +
                                         " of it is a null character; write text");
    }
    lines.push_back(parse_line(line, where));
  }
  return lines;
}

std::vector<AutomationLine> read_automation(const std::filesystem::path& path) {
  try {
    return parse_automation(json::read_text(path, "automation", limits::automation_file),
                            path.string());
  } catch (const json::DocumentError& error) {
    throw Failure(ExitCode::usage, error.what());
  }
}

std::vector<AutomationPoint> prepare_automation(std::vector<AutomationPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::map<std::pair<std::size_t, std::size_t>, AutomationPoint> last;
  for (AutomationPoint& point : points) {
    const auto [before, is_first] = last.try_emplace(std::pair(point.node, point.parameter), point);
    if (!is_first) point.from = value_at(before->second, point.begin);
    before->second = point;
  }
  return points;
}

std::vector<std::pair<const AutomationPoint*, double>> values_at(
    const std::vector<AutomationPoint>& points, std::int64_t frame) {
  std::vector<std::pair<const AutomationPoint*, double>> values;
  for (const AutomationPoint& point : points) {
    if (point.begin > frame) break;
    const auto known = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      return same_parameter(*value.first, point);
    });
    if (known == values.end()) {
      values.emplace_back(&point, value_at(point, frame));
    } else {
      *known = {&point, value_at(point, frame)};
    }
  }
  return values;
}

std::optional<AutomationPoint> Automation::first_beyond(std::uint32_t frames,
                                                        std::size_t most) const {
  Automation rest = *this;
  std::vector<WorkerParameterChange> changes;
  while (rest.next_ < points_.size()) {
    const std::size_t first = rest.next_;
    rest.fill(points_[first].begin / frames * frames, frames, changes);
    if (changes.size() <= most) continue;
    const std::size_t ramps = changes.size() - (rest.next_ - first);
    return points_[first + most - std::min(most, ramps)];
  }
  return std::nullopt;
}

void Automation::fill(std::int64_t position, std::uint32_t frames,
                      std::vector<WorkerParameterChange>& changes) {
  changes.clear();
  const auto add = [&](const AutomationPoint& point) {
    changes.push_back({point.node, point.parameter, point.begin - position, point.value,
                       point.ramp_frames, point.from});
  };
  std::erase_if(running_, [&](const AutomationPoint& ramp) { return ramp.end() <= position; });
  for (const AutomationPoint& ramp : running_) add(ramp);
  for (; next_ < points_.size() && points_[next_].begin < position + frames; ++next_) {
    const AutomationPoint& point = points_[next_];
    add(point);
    std::erase_if(running_, [&](const auto& ramp) { return same_parameter(ramp, point); });
    if (point.end() > position + frames) running_.push_back(point);
  }
}

}  // namespace ctxbroker::sample_host
