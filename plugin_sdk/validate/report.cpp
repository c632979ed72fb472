// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ctxbroker/version.hpp"
#include "ladder.hpp"

namespace ctxbroker::validate {
namespace {

constexpr std::array outcomes{Outcome::pass, Outcome::fail, Outcome::crash, Outcome::hang,
                              Outcome::skip};

bool is_bad(const Result& result) {
  return result.outcome != Outcome::pass && result.outcome != Outcome::skip;
}

long count_of(const std::vector<Result>& results, Outcome outcome) {
  return std::count_if(results.begin(), results.end(),
                       [&](const Result& one) { return one.outcome == outcome; });
}

}  // namespace

std::string text_of(const Options& options, const Result& result, bool verbose) {
  const bool bad = is_bad(result);
  if (!bad && !verbose) return "";
  const std::string who = result.plugin.empty() ? options.file.filename().string() : result.plugin;
  char head[256];
  std::snprintf(head, sizeof head, "%-6s%-25s%s\n", to_string(result.outcome), result.test->id,
                who.c_str());
  std::string text = head;
  if (!result.text.empty()) text += "      " + result.text + "\n";
  if (!bad) return text;
  text += std::string("      rule: ") + result.test->rule + "\n";
  std::string line = "      | ";
  for (const char c : result.output) {
    if (c != '\n') {
      line += c;
      continue;
    }
    if (line.size() > 8) text += line + "\n";
    line = "      | ";
  }
  return text + "      repeat: " + reproduce_line(options, result) + "\n";
}

std::string summary_text(const Options& options, const std::vector<Result>& results) {
  std::string text = options.file.filename().string() + ", strictness " +
                     std::to_string(options.strictness) + ", seed " + std::to_string(options.seed) +
                     ": ";
  for (const Outcome outcome : outcomes) {
    text += std::to_string(count_of(results, outcome)) + " " + to_string(outcome) +
            (outcome == outcomes.back() ? "\n" : ", ");
  }
  return text;
}

bool all_well(const std::vector<Result>& results) {
  return std::none_of(results.begin(), results.end(), is_bad);
}

nlohmann::ordered_json json_of(const Options& options, const std::vector<Result>& results) {
  nlohmann::ordered_json json{{"schema", "ctxbroker.validate/1"},
                              {"version", version()},
                              {"file", options.file.string()},
                              {"strictness", options.strictness},
                              {"seed", options.seed}};
  for (const Result& result : results) {
    if (!result.notes.is_object() || !result.notes.contains("driver")) continue;
    json["driver"] = result.notes["driver"];
    json["device"] = result.notes["device"];
  }
  for (const Outcome outcome : outcomes) {
    json["summary"][to_string(outcome)] = count_of(results, outcome);
  }
  json["results"] = nlohmann::ordered_json::array();
  for (const Result& result : results) {
    nlohmann::ordered_json one{{"test", result.test->id},
                               {"plugin", result.plugin},
                               {"strictness", result.test->strictness},
                               {"outcome", to_string(result.outcome)},
                               {"seconds", result.seconds}};
    if (!result.text.empty()) one["text"] = result.text;
    if (!result.output.empty()) one["output"] = result.output;
    if (is_bad(result)) {
      one["rule"] = result.test->rule;
      one["reproduce"] = reproduce_line(options, result);
    }
    json["results"].push_back(std::move(one));
  }
  return json;
}

std::string ladder_text() {
  std::string text = "| strictness | test | for | rule |\n|---|---|---|---|\n";
  for (int strictness = 1; strictness <= 10; ++strictness) {
    for (const Test& test : ladder()) {
      if (test.strictness != strictness) continue;
      text += "| " + std::to_string(strictness) + " | `" + test.id + "` | " + test.applies.text +
              " | " + test.rule + " |\n";
    }
  }
  return text;
}

}  // namespace ctxbroker::validate
