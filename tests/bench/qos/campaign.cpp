// SPDX-License-Identifier: Apache-2.0
#include "qos/campaign.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <regex>

#include "qos/victim.hpp"

namespace ctxbroker::bench {
namespace {

std::string name_of(const Arrangement& arrangement, const Load& load) {
  return std::string(arrangement.name) + "/" + load.name;
}

// Room for all of them is made before anything is timed.
struct Latencies {
  std::vector<double> solo, loaded;
};

void measure(Session& session, const Pace& pace, Pair& pair, Victim& victim,
             const CampaignOptions& options, CaseResult& result) {
  constexpr double most_per_second = 200'000;
  Latencies latencies;
  latencies.solo.reserve(static_cast<std::size_t>(options.seconds / 4 * most_per_second) + 16);
  latencies.loaded.reserve(static_cast<std::size_t>(options.seconds * most_per_second) + 16);
  const double slice = options.seconds / options.slices;
  std::vector<double> warm;
  victim.play(slice / 8, warm);
  for (unsigned i = 0; i < options.slices; ++i) {
    victim.play(slice / 4, latencies.solo);
    RunningLoad load(session, pace, pair.neighbour(), *result.load, options.loads);
    victim.play(slice, latencies.loaded);
    load.stop();
    result.done += load.done();
    result.refused += load.refused();
  }
  result.solo = summarise(std::move(latencies.solo));
  result.loaded = summarise(std::move(latencies.loaded));
}

void print_head() {
  std::printf("%-28s %9s | %8s %8s %8s | %8s %8s %8s %9s | %6s | %9s\n", "arrangement/load",
              "blocks", "solo p50", "p99", "p99.9", "p50", "p99", "p99.9", "worst", "ratio",
              "neighbour");
  std::printf("%-28s %9s | %26s | %36s | %6s | %9s\n", "", "", "microseconds", "microseconds",
              "p99.9", "did");
}

void print(const CaseResult& result) {
  const std::string name = name_of(*result.arrangement, *result.load);
  if (!result.failure.empty()) {
    std::printf("%-28s failed: %s\n", name.c_str(), result.failure.c_str());
  } else {
    const Summary &solo = result.solo, &loaded = result.loaded;
    std::printf("%-28s %9zu | %8.1f %8.1f %8.1f | %8.1f %8.1f %8.1f %9.1f | %6.2f | %9llu",
                name.c_str(), loaded.count, solo.p50 / 1e3, solo.p99 / 1e3, solo.p999 / 1e3,
                loaded.p50 / 1e3, loaded.p99 / 1e3, loaded.p999 / 1e3, loaded.worst / 1e3,
                loaded.p999 / solo.p999, static_cast<unsigned long long>(result.done));
    if (result.refused > 0) {
      std::printf(", %llu refused", static_cast<unsigned long long>(result.refused));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace

std::vector<std::string> chosen_cases(const std::string& only) {
  const std::regex pattern(only.empty() ? ".*" : only);
  std::vector<std::string> names;
  for (const Arrangement& arrangement : arrangements()) {
    for (const Load& load : loads()) {
      const std::string name = name_of(arrangement, load);
      if (std::regex_search(name, pattern)) names.push_back(name);
    }
  }
  return names;
}

std::vector<CaseResult> run_campaign(Session& session, const CampaignOptions& options) {
  const std::regex pattern(options.only.empty() ? ".*" : options.only);
  std::optional<Pace> pace;
  {
    const Guard guard(session.host());
    const Module module(session.raw(), kernel_image());
    pace.emplace(session.raw(), module.function("work"), session.device().multiprocessors);
  }
  std::vector<CaseResult> results;
  print_head();
  for (const Arrangement& arrangement : arrangements()) {
    for (const Load& load : loads()) {
      if (!std::regex_search(name_of(arrangement, load), pattern)) continue;
      CaseResult result;
      result.arrangement = &arrangement;
      result.load = &load;
      try {
        Pair pair(session, arrangement);
        Victim victim(session, pair.victim());
        result.victims_multiprocessors = pair.victim().lease().granted.multiprocessors;
        result.neighbours_multiprocessors = pair.neighbour().lease().granted.multiprocessors;
        measure(session, *pace, pair, victim, options, result);
      } catch (const std::exception& error) {
        result.failure = error.what();
      }
      print(result);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace ctxbroker::bench
