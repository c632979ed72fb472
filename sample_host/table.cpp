// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "observe/number_text.hpp"

namespace ctxbroker::sample_host {

namespace {

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a UTF-8 continuation
  }));
}

std::string format_line(const std::vector<std::string>& cells, const std::vector<Column>& columns,
                        const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(widths[i] - width_of(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += columns[i].align == Align::right ? blanks + cells[i] : cells[i] + blanks;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string with_three_digits(double value, const char* unit) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return detail::fixed_text(value, decimals) + " " + unit;
}

}  // namespace

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    titles.push_back(column.title);
    widths.push_back(width_of(column.title));
  }
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  const auto titled = [](const Column& column) { return !column.title.empty(); };
  if (std::any_of(columns.begin(), columns.end(), titled)) {
    std::vector<std::string> rules;
    rules.reserve(widths.size());
    for (const std::size_t width : widths) rules.emplace_back(width, '-');
    text += format_line(titles, columns, widths) + format_line(rules, columns, widths);
  }
  for (const auto& row : rows) text += format_line(row, columns, widths);
  return text;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return with_three_digits(value, units[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 0.9995e-3) return with_three_digits(seconds * 1e6, "us");
  if (seconds < 0.9995) return with_three_digits(seconds * 1e3, "ms");
  return with_three_digits(seconds, "s");
}

std::string format_number(double value) {
  std::array<char, 64> text{};
  char* const begin = text.data();
  char* const end = begin + text.size();
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-6 && size < 1e15);  // 100000, and not 1e+05
  const auto written = is_plain ? std::to_chars(begin, end, value, std::chars_format::fixed)
                                : std::to_chars(begin, end, value);
  return {begin, written.ptr};
}

}  // namespace ctxbroker::sample_host
