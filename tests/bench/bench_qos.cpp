// SPDX-License-Identifier: Apache-2.0
// How long a small audio plug-in waits for its work beside a neighbour that misbehaves: the latency
// of guard, launch and wait of 64 stereo frames, by where the two are (arrangement) and by what the
// neighbour does (load). Each case takes turns with silence, its own measure. A neighbour that
// allocates is measured with each source of its memory. bench_report.py makes a table and a picture
// of the JSON files.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <regex>
#include <string>
#include <vector>

#include "qos/campaign.hpp"

namespace {

using namespace ctxbroker::bench;

constexpr int failure = 1, usage = 2;

std::string footer() {
  std::string text = "Arrangements:\n";
  for (const Arrangement& one : arrangements()) {
    text += "  " + std::string(one.name) + ": " + one.description + "\n";
  }
  text += "Loads:\n";
  for (const Load& one : loads()) {
    text += "  " + std::string(one.name) + ": " + one.description + "\n";
  }
  text += "Memory, of loads that take some (a private lease has no pool):\n";
  for (const NeighboursMemory& one : neighbours_memories()) {
    text += "  " + std::string(one.name) + ": " + one.description + "\n";
  }
  return text + "CTXBROKER_DRIVER chooses the driver. Status 1: a case failed; 2: wrong arguments.";
}

int measure(const CampaignOptions& options, const std::vector<Case>& cases, const std::string& json,
            bool quick) {
  Session session("bench_qos", quick);
  std::printf("%s, driver %s\n", session.device().name.c_str(),
              session.broker().driver().path.c_str());
  const std::vector<CaseResult> results = run_campaign(session, options, cases);
  if (!json.empty()) write_json(json, session, options, results);
  for (const CaseResult& result : results) {
    if (!result.failure.empty()) return failure;
  }
  return 0;
}

int run(int argc, char** argv) {
  CampaignOptions options;
  std::string json, only;
  bool list = false, quick = false;
  CLI::App app("Latency of an audio plug-in beside a bad neighbour.", "bench_qos");
  app.footer(footer());
  app.add_option("--only", only, "regular expression over \"arrangement/load/memory\"");
  app.add_option("--seconds", options.seconds, "under load, for each case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--slices", options.slices, "parts of it, with silence between")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--hog-ms", options.loads.hog_milliseconds, "length of one launch of a hog")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "write the results to this file");
  app.add_flag("--list", list, "print the names of the cases and run none");
  app.add_flag("--quick", quick, "tiny work, for a smoke test; the figures say nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage;
  }
  if (quick) {
    options.seconds = 0.02;
    options.slices = 1;
    options.loads = {0.01, 1 << 20, 1 << 20};
  }
  const std::vector<Case> cases = chosen_cases(only);
  if (cases.empty()) {
    std::fprintf(stderr, "bench_qos: no case is called like \"%s\"; try --list\n", only.c_str());
    return usage;
  }
  if (!list) return measure(options, cases, json, quick);
  for (const Case& one : cases) std::puts(name_of(one).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::regex_error& error) {
    std::fprintf(stderr, "bench_qos: --only is no regular expression: %s\n", error.what());
    return usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_qos: error: %s\n", error.what());
    return failure;
  }
}
