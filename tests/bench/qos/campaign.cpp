// SPDX-License-Identifier: Apache-2.0
#include "qos/campaign.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <regex>
#include <stdexcept>
#include <utility>

#include "qos/victim.hpp"

namespace ctxbroker::bench {
namespace {

// Room for all of them is made before anything is timed.
struct Latencies {
  std::vector<double> solo, loaded;
};

void measure(Session& session, const Case& one, const Pace& pace, Pair& pair, Victim& victim,
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
    RunningLoad load(one.memory->is_gated ? session.gated() : session.raw(), pace, pair.neighbour(),
                     *one.load, options.loads);
    victim.play(slice, latencies.loaded);
    load.stop();
    result.done += load.done();
    result.refused += load.refused();
  }
  result.kept = session.kept_by(pair.neighbour());
  result.solo = summarise(std::move(latencies.solo));
  result.loaded = summarise(std::move(latencies.loaded));
}

void print_head() {
  std::printf("%-32s %9s | %8s %8s %8s | %8s %8s %8s %9s | %7s %7s %7s | %9s\n",
              "arrangement/load/memory", "blocks", "solo p50", "p99", "p99.9", "p50", "p99",
              "p99.9", "worst", "p50", "p99", "p99.9", "neighbour");
  std::printf("%-32s %9s | %26s | %36s | %23s | %9s\n", "", "", "microseconds", "microseconds",
              "of solo", "did");
}

void print(const CaseResult& result) {
  const std::string name = name_of(result.what);
  if (!result.failure.empty()) {
    std::printf("%-32s failed: %s\n", name.c_str(), result.failure.c_str());
  } else {
    const Summary &solo = result.solo, &loaded = result.loaded;
    std::printf(
        "%-32s %9zu | %8.1f %8.1f %8.1f | %8.1f %8.1f %8.1f %9.1f | %7.2f %7.2f %7.2f | %9llu",
        name.c_str(), loaded.count, solo.p50 / 1e3, solo.p99 / 1e3, solo.p999 / 1e3,
        loaded.p50 / 1e3, loaded.p99 / 1e3, loaded.p999 / 1e3, loaded.worst / 1e3,
        loaded.p50 / solo.p50, loaded.p99 / solo.p99, loaded.p999 / solo.p999,
        static_cast<unsigned long long>(result.done));
    if (result.refused > 0) {
      std::printf(", %llu refused", static_cast<unsigned long long>(result.refused));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

// A private lease has the driver's memory, whatever was chosen.
bool is_sensible(const Case& one) {
  return one.memory->source != MemorySource::pool ||
         one.arrangement->neighbour.kind != LeaseKind::private_own;
}

CaseResult run_case(Session& session, const Pace& pace, const CampaignOptions& options,
                    const Case& one) {
  CaseResult result;
  result.what = one;
  const bool is_pooled = one.memory->source == MemorySource::pool;
  try {
    if (is_pooled && !session.device().memory_pools) {
      throw std::runtime_error("the device has no memory pools");
    }
    Pair pair(session, *one.arrangement, one.memory->source);
    Victim victim(session, pair.victim());
    result.victims_multiprocessors = pair.victim().lease().granted.multiprocessors;
    result.neighbours_multiprocessors = pair.neighbour().lease().granted.multiprocessors;
    measure(session, one, pace, pair, victim, options, result);
    if (is_pooled && one.load->takes == Takes::device_memory && result.kept == 0) {
      throw std::runtime_error("the neighbour's memory was not its pool's");
    }
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace

std::string name_of(const Case& one) {
  const std::string name = std::string(one.arrangement->name) + "/" + one.load->name;
  return one.load->takes == Takes::no_memory ? name : name + "/" + one.memory->name;
}

std::vector<Case> chosen_cases(const std::string& only) {
  const std::regex pattern(only.empty() ? ".*" : only);
  std::vector<Case> cases;
  for (const Arrangement& arrangement : arrangements()) {
    for (const Load& load : loads()) {
      for (const NeighboursMemory& memory : neighbours_memories()) {
        const Case one{&arrangement, &load, &memory};
        if (is_sensible(one) && std::regex_search(name_of(one), pattern)) cases.push_back(one);
        if (load.takes == Takes::no_memory) break;
      }
    }
  }
  return cases;
}

std::vector<CaseResult> run_campaign(Session& session, const CampaignOptions& options,
                                     const std::vector<Case>& cases) {
  std::optional<Pace> pace;
  {
    const Guard guard(session.host());
    const Module module(session.raw(), kernel_image());
    pace.emplace(session.raw(), module.function("work"), session.device().multiprocessors);
  }
  std::vector<CaseResult> results;
  print_head();
  for (const Case& one : cases) {
    results.push_back(run_case(session, *pace, options, one));
    print(results.back());
  }
  return results;
}

}  // namespace ctxbroker::bench
