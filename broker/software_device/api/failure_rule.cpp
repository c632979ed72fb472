// SPDX-License-Identifier: Apache-2.0
#include "api/failure_rule.hpp"

#include <algorithm>
#include <charconv>

#include "api/entry_points.h"
#include "api/error_names.hpp"

namespace ctxbroker::software {
namespace {

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// Reads one rule; what is wrong with it, or nothing.
std::string parse_rule(std::string_view text, FailureRule& rule) {
  std::size_t colon = text.find(':'), equals = text.find('=');
  if (colon == text.npos || equals == text.npos || equals < colon)
    return quoted(text) + " is not of the form NAME:N=STATUS";
  std::string_view name = text.substr(0, colon);
  std::string_view number = text.substr(colon + 1, equals - colon - 1);
  std::string_view status = text.substr(equals + 1);
  if (name != "*") {
    const char* found = find_entry_name(name);
    if (found == nullptr) return quoted(name) + " is no function of the driver";
    rule.name = found;
  }
  auto result = std::from_chars(number.data(), number.data() + number.size(), rule.after);
  if (result.ec != std::errc() || result.ptr != number.data() + number.size() || rule.after == 0)
    return quoted(number) + " is not a number from 1 on";
  auto found = find_status(status);
  if (!found || *found == CUDA_SUCCESS) return quoted(status) + " is no error of the driver";
  rule.status = *found;
  return {};
}

}  // namespace

const char* find_entry_name(std::string_view name) noexcept {
  const ctxb_entry_point* end = ctxb_entry_points + ctxb_entry_point_count;
  const ctxb_entry_point* found = std::find_if(
      ctxb_entry_points, end, [&](const ctxb_entry_point& entry) { return entry.symbol == name; });
  return found == end ? nullptr : found->symbol;
}

std::variant<std::vector<FailureRule>, std::string> parse_failure_rules(std::string_view text) {
  std::vector<FailureRule> rules;
  while (true) {
    std::size_t comma = text.find(',');
    FailureRule rule;
    if (std::string wrong = parse_rule(text.substr(0, comma), rule); !wrong.empty()) return wrong;
    rules.push_back(rule);
    if (comma == text.npos) return rules;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace ctxbroker::software
