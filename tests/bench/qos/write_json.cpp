// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "qos/campaign.hpp"

namespace ctxbroker::bench {
namespace {

nlohmann::json to_json(const CaseResult& result) {
  const std::string name = name_of(result.what);
  nlohmann::json one = {{"name", name},
                        {"run_name", name},
                        {"run_type", "iteration"},
                        {"repetitions", 1},
                        {"repetition_index", 0},
                        {"threads", 1},
                        {"arrangement", result.what.arrangement->name},
                        {"load", result.what.load->name},
                        {"memory", result.what.memory->name},
                        {"takes_memory", result.what.load->takes != Takes::no_memory},
                        {"victims_multiprocessors", result.victims_multiprocessors},
                        {"neighbours_multiprocessors", result.neighbours_multiprocessors}};
  if (!result.failure.empty()) {
    one["error_occurred"] = true;
    one["error_message"] = result.failure;
    return one;
  }
  one["iterations"] = result.loaded.count;
  one["real_time"] = result.loaded.p50 / 1e3;
  one["cpu_time"] = result.loaded.p50 / 1e3;  // tools that compare want both
  one["time_unit"] = "us";
  const auto add = [&](const char* what, double loaded, double solo) {
    one[what] = loaded / 1e3;
    one[std::string("solo_") + what] = solo / 1e3;
    one[std::string(what) + "_of_solo"] = loaded / solo;
  };
  add("p50", result.loaded.p50, result.solo.p50);
  add("p99", result.loaded.p99, result.solo.p99);
  add("p999", result.loaded.p999, result.solo.p999);
  add("worst", result.loaded.worst, result.solo.worst);
  one["neighbour_did"] = result.done;
  one["neighbour_was_refused"] = result.refused;
  one["neighbour_kept_bytes"] = result.kept;
  return one;
}

std::string date_now() {
  char text[32] = {};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(text, sizeof text, "%FT%TZ", gmtime_r(&now, &parts));
  return text;
}

}  // namespace

void write_json(const std::string& path, Session& session, const CampaignOptions& options,
                const std::vector<CaseResult>& results) {
  const DriverInfo& driver = session.broker().driver();
  const bool has_gate = session.broker().gate().mode != GateMode::none;
  nlohmann::json document = {{"context",
                              {{"date", date_now()},
                               {"executable", "bench_qos"},
                               {"num_cpus", std::thread::hardware_concurrency()},
                               {"device", session.device().name},
                               {"driver", driver.path},
                               {"driver_version", driver.version},
                               {"gate", has_gate ? "in force" : "not in force"},
                               {"seconds", options.seconds},
                               {"hog_milliseconds", options.loads.hog_milliseconds}}},
                             {"benchmarks", nlohmann::json::array()}};
  for (const CaseResult& result : results) document["benchmarks"].push_back(to_json(result));
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error("the file \"" + path + "\" cannot be written");
}

}  // namespace ctxbroker::bench
